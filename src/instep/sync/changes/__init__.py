"""What changes the destination's schema or takes a change back, without reading the source's rows."""
