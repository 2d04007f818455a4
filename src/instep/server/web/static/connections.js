// Enhances the screens of connections and runs.
