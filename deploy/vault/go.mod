module chart.local/vault

go 1.25

require github.com/hashicorp/vault v1.21.0

replace github.com/hashicorp/vault/sdk => github.com/hashicorp/vault/sdk v0.20.0

replace github.com/hashicorp/vault/api => github.com/hashicorp/vault/api v1.22.0
