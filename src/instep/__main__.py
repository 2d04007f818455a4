"""`python -m instep`: the console script, where it is not on the path."""

from instep.cli.entry import run

if __name__ == "__main__":
    run()
