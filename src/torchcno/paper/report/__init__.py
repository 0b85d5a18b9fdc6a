"""The page with every table and figure of the paper, from a folder of results."""
