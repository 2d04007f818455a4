"""Configurations of other products, read from their exports and written as a project of `instep`."""
