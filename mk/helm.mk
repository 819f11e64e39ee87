# The Helm chart: schema and scenarios in `make test` (helm is built of its published module, 5 minutes, once), a real
# Kubernetes control plane in `make verify-all`.
LINT += lint-deploy
CONTRACT += helm-check
LONG += verify-helm verify-cluster
HELM_TOOLS := $(BUILD)/tools
# The API server says its version by these; the chart asks for it.
KUBERNETES := $(shell sed -n 's|^\tk8s.io/kubernetes \(v[0-9.]*\)$$|\1|p' deploy/kubernetes/go.mod)
KUBERNETES_VERSION := -X k8s.io/component-base/version.gitVersion=$(KUBERNETES) -X k8s.io/client-go/pkg/version.gitVersion=$(KUBERNETES)

##@ Deploy
.PHONY: helm-test helm-check verify-helm lint-deploy cluster-test verify-cluster
helm-test: $(VENV)/.installed $(BUILD)/.packages-kubernetes $(HELM_TOOLS)/helm $(HELM_TOOLS)/kubernetes $(HELM_TOOLS)/kwok ## install, upgrade, roll back and uninstall the Helm chart on a real control plane
	@$(PYTHON) deploy/kubernetes/helm_test.py --tools $(HELM_TOOLS) --report $(VAR)/helm/report.json

helm-check: $(VENV)/.installed $(HELM_TOOLS)/helm ## lint and render every scenario, refuse every wrong value; no control plane
	@$(PYTHON) deploy/kubernetes/helm_test.py --tools $(HELM_TOOLS) --report $(VAR)/helm/check.json --offline

verify-helm: $(VENV)/.installed
	@if $(MAKE) $(BUILD)/.packages-kubernetes $(HELM_TOOLS)/helm $(HELM_TOOLS)/kubernetes $(HELM_TOOLS)/kwok; then \
	    $(MAKE) helm-test; else $(call left_out,helm-test,the control plane cannot be built here); fi

# The version that is upgraded from: a tag of images and the chart of that revision; CLUSTER_PREVIOUS= leaves the upgrade out.
CLUSTER_PREVIOUS ?= $(shell cat VERSION)-previous
# Such as --pairs 1 --seconds 5.
CLUSTER_OPTIONS ?=
CLUSTER_CHART := $(BUILD)/cluster/previous-chart
cluster-test: $(VENV)/.installed images $(BUILD)/.packages-cluster $(HELM_TOOLS)/helm $(HELM_TOOLS)/kubernetes $(HELM_TOOLS)/coredns kafka lab ## CHART on two real Kubernetes nodes with an emulated link (root): pods' rates, kills, upgrade, uninstallation
	@set -e; previous=; options=; \
	if [ -n "$(CLUSTER_PREVIOUS)" ]; then \
	    previous=$$(deploy/compose/previous $(BUILD) $(shell cat VERSION)); \
	    options="--previous $$previous --previous-chart $(CLUSTER_CHART)"; fi; \
	images=$$(deploy/kubernetes/cluster_images $(BUILD) $(shell cat VERSION) $$previous); \
	$(PYTHON) deploy/kubernetes/cluster_test.py --tools $(HELM_TOOLS) --images $$images --tag $(shell cat VERSION) \
	    --report $(VAR)/cluster/report.json $$options $(CLUSTER_OPTIONS)

verify-cluster: $(VENV)/.installed
	@if $(MAKE) $(BUILD)/.packages-images && deploy/images/engine up $(BUILD)/docker >/dev/null; then \
	    $(MAKE) cluster-test; else $(call left_out,cluster-test,no Docker engine answers and none can be started); fi

# Every metric of an alert or a dashboard is exported by something; every alert has a runbook.
lint-deploy: $(VENV)/.installed
	@$(VENV)/bin/ruff check -q deploy
	@$(VENV)/bin/ruff format -q --check deploy
	@$(PYTHON) deploy/metrics_lint.py

$(BUILD)/.packages-kubernetes: deploy/kubernetes/packages.txt deploy/install-packages
	@mkdir -p $(@D)
	@deploy/install-packages deploy/kubernetes/packages.txt
	@touch $@

$(HELM_TOOLS)/helm:
	@echo "helm: building it"
	@mkdir -p $(@D) && GOBIN=$(@D) go install helm.sh/helm/v3/cmd/helm@v3.18.6

$(HELM_TOOLS)/kwok:
	@echo "helm: building kwok, which simulates nodes"
	@mkdir -p $(@D) && GOBIN=$(@D) go install sigs.k8s.io/kwok/cmd/kwok@v0.7.0

$(BUILD)/.packages-cluster: deploy/kubernetes/packages-cluster.txt $(BUILD)/.packages-kubernetes
	@deploy/install-packages deploy/kubernetes/packages-cluster.txt
	@touch $@

$(HELM_TOOLS)/coredns:
	@echo "cluster: building coredns, this takes some minutes"
	@mkdir -p $(@D) && GOBIN=$(@D) go install github.com/coredns/coredns@v1.12.4

$(HELM_TOOLS)/kubernetes: deploy/kubernetes/main.go deploy/kubernetes/go.mod deploy/kubernetes/go.sum
	@echo "helm: building API server, controllers, scheduler and kubelet, this takes some minutes"
	@mkdir -p $(@D) && cd deploy/kubernetes && go build -trimpath -ldflags "-s -w $(KUBERNETES_VERSION)" -o $@ .
