"""serbench_codecs: the contract between a scheduler and its workers, and the codecs that keep their tables equal."""
