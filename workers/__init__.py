"""The engine side: the actor that owns one SGLang engine, and the patch inside its scheduler."""
