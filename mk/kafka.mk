# The Kafka broker's published jars, for the embedded platform and for tests.
SETUP += kafka

KAFKA_LIBS := $(BUILD)/kafka/libs
MAVEN_COPY := org.apache.maven.plugins:maven-dependency-plugin:2.8:copy-dependencies

.PHONY: kafka
kafka: $(BUILD)/kafka/.stamp

# Jars that are there already and match the pom are kept: Maven only looks at its local repository then.
$(BUILD)/kafka/.stamp: deploy/kafka/pom.xml $(BUILD)/.packages
	@echo "kafka: fetching the broker's jars"
	@mkdir -p $(KAFKA_LIBS)
	@mvn -q -B -f deploy/kafka/pom.xml $(MAVEN_COPY) -DoutputDirectory=$(KAFKA_LIBS) -DincludeScope=runtime
	@ls $(KAFKA_LIBS)/kafka_2.13-*.jar >/dev/null
	@touch $@
