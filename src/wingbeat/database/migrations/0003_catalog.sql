CREATE TABLE cached_outputs (
    scope TEXT NOT NULL,
    cache_key TEXT NOT NULL,
    output_uri TEXT NOT NULL,
    report_uri TEXT NOT NULL,
    source TEXT NOT NULL,
    updated_at BIGINT NOT NULL,
    PRIMARY KEY (scope, cache_key)
);
