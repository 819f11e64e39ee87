# HashiCorp Vault for tests and trials on this machine. It is not part of `make setup`: the build takes about ten minutes.
# A `vault` on the PATH is used as it is.
VAULT_BUILD := $(BUILD)/vault

##@ Security
.PHONY: vault
vault: $(BUILD)/bin/vault ## build Vault from its published source (10 min), for tests against the real thing

$(BUILD)/bin/vault: deploy/vault/main.go deploy/vault/go.mod
	@mkdir -p $(@D) $(VAULT_BUILD)
	@if command -v vault >/dev/null; then \
	    echo "vault: using $$(command -v vault)"; ln -sf "$$(command -v vault)" $@; \
	else \
	    echo "vault: building it, this takes about ten minutes"; \
	    cp deploy/vault/main.go deploy/vault/go.mod $(VAULT_BUILD)/; \
	    cd $(VAULT_BUILD) && go mod tidy -e >tidy.log 2>&1 && go build -trimpath -ldflags "-s -w" -o $(BUILD)/bin/vault.new . \
	        && mv $(BUILD)/bin/vault.new $@; \
	fi
