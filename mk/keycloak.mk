# Keycloak for tests and trials on this machine. It is not part of `make setup`: its distribution is large. `make verify-all`
# fetches it.
LONG += verify-keycloak

.PHONY: keycloak verify-keycloak
keycloak: $(BUILD)/keycloak/.stamp ## fetch Keycloak's published distribution, for tests against the real thing

verify-keycloak: setup
	@if $(MAKE) keycloak; then $(PYTEST) services/tests/gateway/test_keycloak.py; \
	    else $(call left_out,keycloak,its distribution cannot be fetched here); fi

$(BUILD)/keycloak/.stamp: deploy/keycloak/pom.xml $(BUILD)/.packages
	@echo "keycloak: fetching its distribution"
	@rm -rf $(BUILD)/keycloak && mkdir -p $(BUILD)/keycloak
	@mvn -q -B -f deploy/keycloak/pom.xml $(MAVEN_COPY) -DoutputDirectory=$(BUILD)/keycloak
	@cd $(BUILD)/keycloak && $(PYTHON) -m zipfile -e keycloak-quarkus-dist-*.zip . && rm keycloak-quarkus-dist-*.zip
	@mv $(BUILD)/keycloak/keycloak-*/* $(BUILD)/keycloak/ && chmod +x $(BUILD)/keycloak/bin/kc.sh
	@touch $@
