module chart.local/collector

go 1.25

require (
	go.opentelemetry.io/collector/component v1.41.0
	go.opentelemetry.io/collector/confmap v1.41.0
	go.opentelemetry.io/collector/confmap/provider/fileprovider v1.41.0
	go.opentelemetry.io/collector/exporter v0.135.0
	go.opentelemetry.io/collector/exporter/debugexporter v0.135.0
	go.opentelemetry.io/collector/otelcol v0.135.0
	go.opentelemetry.io/collector/processor v1.41.0
	go.opentelemetry.io/collector/processor/batchprocessor v0.135.0
	go.opentelemetry.io/collector/receiver v1.41.0
	go.opentelemetry.io/collector/receiver/otlpreceiver v0.135.0
)
