"""A local page on which a person draws an input and sees what trained networks answer."""
