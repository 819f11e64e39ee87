# Vault of docker-compose.yml: one server, files, no TLS inside the compose network. It starts sealed; vault-setup opens it.
storage "file" { path = "/vault/file" }
listener "tcp" {
  address     = "0.0.0.0:8200"
  tls_disable = true
}
api_addr      = "http://vault:8200"
disable_mlock = true
log_level     = "warn"
