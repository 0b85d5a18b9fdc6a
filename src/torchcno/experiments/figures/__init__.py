"""What is drawn: curves, fields, meshes, and galleries of problems."""
