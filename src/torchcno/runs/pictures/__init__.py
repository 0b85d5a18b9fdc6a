"""Pictures of fields, problems and trained operators."""
