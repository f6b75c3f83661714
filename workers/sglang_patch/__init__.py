"""Everything that imports SGLang or is put into it."""
