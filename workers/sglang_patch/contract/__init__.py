"""What the patch touches of SGLang's insides: a table, its check against the installed source, and a proof in each process."""
