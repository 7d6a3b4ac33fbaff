"""Gates for CI: a baseline in a file, what is measured against it, and what fails."""
