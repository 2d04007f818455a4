// Enhances the screens of changes, reviews and lineage.
