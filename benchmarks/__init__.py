"""Programs that measure Wingbeat beside its floors and its peers. See README.md."""
