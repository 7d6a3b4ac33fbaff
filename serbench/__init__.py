"""serbench: a command line and a harness that measure what codecs cost and gain inside a complete inference engine."""
