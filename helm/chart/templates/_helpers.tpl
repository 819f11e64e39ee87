{{- /* Names, labels and the parts that every pod has. */ -}}

{{- define "chart.fullname" -}}
{{- if contains .Chart.Name .Release.Name -}}
{{- .Release.Name | trunc 40 | trimSuffix "-" -}}
{{- else -}}
{{- printf "%s-%s" .Release.Name .Chart.Name | trunc 40 | trimSuffix "-" -}}
{{- end -}}
{{- end -}}

{{- define "chart.image" -}}
{{- $repository := .root.Values.image.repository -}}
{{- printf "%s%s:%s" (ternary "" (printf "%s/" (trimSuffix "/" $repository)) (empty $repository)) .image (default .root.Chart.AppVersion .root.Values.image.tag) -}}
{{- end -}}

{{- /* Labels by which a component is found; they never change. */ -}}
{{- define "chart.selector" -}}
app.kubernetes.io/name: {{ .root.Chart.Name }}
app.kubernetes.io/instance: {{ .root.Release.Name }}
app.kubernetes.io/component: {{ .name }}
{{- end -}}

{{- define "chart.labels" -}}
{{ include "chart.selector" . }}
app.kubernetes.io/part-of: chart
app.kubernetes.io/version: {{ .root.Chart.AppVersion | quote }}
app.kubernetes.io/managed-by: {{ .root.Release.Service }}
helm.sh/chart: {{ printf "%s-%s" .root.Chart.Name .root.Chart.Version }}
{{- end -}}

{{- define "chart.pullSecrets" -}}
{{- with .Values.image.pullSecrets }}
imagePullSecrets:
  {{- range . }}
  - name: {{ . }}
  {{- end }}
{{- end }}
{{- end -}}

{{- /* No root, nothing writable but what is mounted, no capability. */ -}}
{{- define "chart.podSecurity" -}}
runAsNonRoot: true
runAsUser: 10001
runAsGroup: 10001
fsGroup: 10001
seccompProfile:
  type: RuntimeDefault
{{- end -}}

{{- define "chart.containerSecurity" -}}
allowPrivilegeEscalation: false
readOnlyRootFilesystem: true
capabilities:
  drop: [ALL]
{{- end -}}

{{- /* Environment that every Python service reads (chart.common.settings). root, name (its principal at the broker) */ -}}
{{- define "chart.environment" -}}
{{- $principal := . -}}
{{- with .root -}}
{{- $full := include "chart.fullname" . -}}
- {name: CHART_ENVIRONMENT, value: {{ .Values.environment | quote }}}
- {name: CHART_LOG_LEVEL, value: {{ .Values.logLevel | quote }}}
- {name: CHART_STATE_DIR, value: /var/lib/chart}
- {name: CHART_GRPC_LISTEN, value: "0.0.0.0:9000"}
- {name: CHART_HTTP_LISTEN, value: "0.0.0.0:8080"}
{{- range $name := list "registry" "allocator" "reservations" "archiver" "inference" "tunnels" }}
- {name: CHART_{{ $name | upper }}_TARGET, value: "{{ $full }}-{{ $name }}:9000"}
{{- end }}
- {name: CHART_KAFKA_REPLICATION, value: {{ .Values.kafka.replicationFactor | quote }}}
{{- with .Values.telemetry.otlpEndpoint }}
- {name: CHART_OTLP_ENDPOINT, value: {{ . | quote }}}
{{- end }}
{{ include "chart.kafkaEnvironment" $principal }}
{{- end }}
{{- end -}}

{{- /* Whether agents, ends of tunnels and sensor pods have their certificate of the broker from their enrolment. */ -}}
{{- define "chart.kafkaEnrolled" -}}
{{- if and (has .name (list "agent" "sensor-pod" "tunnel-ends")) (eq .root.Values.kafka.nodes.identity "enrolment") }}yes{{ end -}}
{{- end -}}

{{- /* The secret with which a principal speaks to the broker: its own, or that of all. root, name */ -}}
{{- define "chart.kafkaSecret" -}}
{{- default .root.Values.kafka.secret (get .root.Values.kafka.secrets .name) -}}
{{- end -}}

{{- /* root, name (the principal) */ -}}
{{- define "chart.kafkaEnvironment" -}}
{{- $own := or (include "chart.kafkaEnrolled" .) (include "chart.kafkaSecret" .) -}}
{{- if and (eq .root.Values.environment "production") (not $own) (ne .name "migrate") }}
{{- fail (printf "kafka.secret is missing, and kafka.secrets has none for %s: in production the services refuse a broker in plain, because whoever can write to it commands every node; state the secret with kafka.properties, or environment: development" .name) }}
{{- end }}
- {name: CHART_KAFKA_BOOTSTRAP, value: {{ required "kafka.bootstrap is missing: HOST:PORT of the brokers" .root.Values.kafka.bootstrap | quote }}}
{{- if $own }}
- {name: CHART_KAFKA_PROPERTIES, value: /etc/chart/kafka/kafka.properties}
{{- end }}
{{- end -}}

{{- define "chart.kafkaMount" -}}
{{- if or (include "chart.kafkaEnrolled" .) (include "chart.kafkaSecret" .) }}
- {name: kafka, mountPath: /etc/chart/kafka, readOnly: true}
{{- end }}
{{- end -}}

{{- define "chart.kafkaVolume" -}}
{{- if include "chart.kafkaEnrolled" . }}
- name: kafka
  projected:
    defaultMode: 288
    sources:
      - configMap: {name: {{ include "chart.fullname" .root }}-kafka-nodes, items: [{key: {{ .name }}.properties, path: kafka.properties}]}
      {{- with .root.Values.kafka.nodes.caSecret }}
      - secret: {name: {{ . }}, items: [{key: ca.crt, path: ca.crt}]}
      {{- end }}
{{- else }}
{{- with include "chart.kafkaSecret" . }}
- {name: kafka, secret: {secretName: {{ . }}, defaultMode: 288}}
{{- end }}
{{- end }}
{{- end -}}

{{- /* Where pods of the cluster reach the authority. */ -}}
{{- define "chart.authorityUrl" -}}
https://{{ include "chart.fullname" . }}-authority.{{ .Release.Namespace }}.svc:{{ .Values.authority.service.port }}
{{- end -}}

{{- /* How a pod proves to the authority who it is, and how it knows the authority: environment, mounts, volumes.
root, ca (the authority's certificate; default: as mounted) */ -}}
{{- define "chart.identityEnvironment" -}}
{{- if .root.Values.authority.enabled -}}
- {name: CHART_AUTHORITY_URL, value: {{ include "chart.authorityUrl" .root | quote }}}
- {name: CHART_AUTHORITY_CA, value: {{ default "/etc/chart/authority/ca.pem" .ca }}}
- {name: CHART_SERVICE_ACCOUNT_TOKEN_FILE, value: /etc/chart/enrolment/token}
{{- end }}
- {name: CHART_RECORD_AUTHENTICATION, value: {{ ternary .root.Values.nodes.recordAuthentication "off" .root.Values.authority.enabled | quote }}}
{{- end -}}

{{- define "chart.identityMounts" -}}
- {name: authority-ca, mountPath: /etc/chart/authority, readOnly: true}
- {name: enrolment, mountPath: /etc/chart/enrolment, readOnly: true}
{{- end -}}

{{- define "chart.identityVolumes" -}}
# The authority puts its certificate there; a pod that is earlier waits for it by itself.
- {name: authority-ca, configMap: {name: {{ include "chart.fullname" . }}-authority-ca, optional: true}}
- name: enrolment
  projected:
    sources:
      - serviceAccountToken: {path: token, audience: {{ .Values.authority.enrolmentAudience }}, expirationSeconds: 3600}
{{- end -}}

{{- /* What a pod calls the cluster's API server with. */ -}}
{{- define "chart.apiMount" -}}
- {name: api, mountPath: /var/run/secrets/kubernetes.io/serviceaccount, readOnly: true}
{{- end -}}

{{- define "chart.apiVolume" -}}
- name: api
  projected:
    sources:
      - serviceAccountToken: {path: token, expirationSeconds: 3600}
      - configMap: {name: kube-root-ca.crt, items: [{key: ca.crt, path: ca.crt}]}
{{- end -}}

{{- define "chart.databaseEnvironment" -}}
- name: CHART_DATABASE_URL
  valueFrom:
    secretKeyRef:
      name: {{ required "database.secret is missing: the secret with the connection addresses" .root.Values.database.secret }}
      key: {{ .role }}
{{- end -}}

{{- define "chart.volumeMounts" -}}
- {name: state, mountPath: /var/lib/chart}
- {name: tmp, mountPath: /tmp}
{{- include "chart.kafkaMount" . }}
{{- end -}}

{{- define "chart.volumes" -}}
- {name: tmp, emptyDir: {medium: Memory, sizeLimit: 64Mi}}
{{- include "chart.kafkaVolume" . }}
{{- end -}}

{{- define "chart.placement" -}}
{{- with .nodeSelector }}
nodeSelector: {{- toYaml . | nindent 2 }}
{{- end }}
{{- with .tolerations }}
tolerations: {{- toYaml . | nindent 2 }}
{{- end }}
{{- with .affinity }}
affinity: {{- toYaml . | nindent 2 }}
{{- end }}
{{- with .priorityClassName }}
priorityClassName: {{ . }}
{{- end }}
{{- end -}}

{{- /* A component's own settings of its pods before those of podDefaults. root, values (the component's) */ -}}
{{- define "chart.podPlacement" -}}
{{- include "chart.placement" (merge (pick .values "nodeSelector" "tolerations" "affinity" "priorityClassName") .root.Values.podDefaults) -}}
{{- end -}}

{{- define "chart.podAnnotations" -}}
{{- with merge (dict) (default dict .values.podAnnotations) .root.Values.podDefaults.podAnnotations }}
annotations: {{- toYaml . | nindent 2 }}
{{- end }}
{{- end -}}

{{- /* Further environment, the component's own last: it goes before that of podDefaults. root, values */ -}}
{{- define "chart.extraEnv" -}}
{{- with concat (default list .root.Values.podDefaults.extraEnv) (default list .values.extraEnv) }}
{{- toYaml . }}
{{- end }}
{{- end -}}

{{- /* More replicas under load, from values.autoscaling. root, name, values */ -}}
{{- define "chart.autoscaler" -}}
{{- with .values.autoscaling }}
{{- if .enabled }}
---
apiVersion: autoscaling/v2
kind: HorizontalPodAutoscaler
metadata:
  name: {{ include "chart.fullname" $.root }}-{{ $.name }}
  labels: {{- include "chart.labels" $ | nindent 4 }}
spec:
  scaleTargetRef: {apiVersion: apps/v1, kind: Deployment, name: {{ include "chart.fullname" $.root }}-{{ $.name }}}
  minReplicas: {{ $.values.replicas }}
  maxReplicas: {{ max (int .maxReplicas) (int $.values.replicas) }}
  metrics:
    - type: Resource
      resource: {name: cpu, target: {type: Utilization, averageUtilization: {{ .cpuPercent }}}}
{{- end }}
{{- end }}
{{- end -}}

{{- define "chart.account" -}}
apiVersion: v1
kind: ServiceAccount
metadata:
  name: {{ include "chart.fullname" .root }}-{{ .name }}
  labels: {{- include "chart.labels" . | nindent 4 }}
  {{- with .annotations }}
  annotations: {{- toYaml . | nindent 4 }}
  {{- end }}
automountServiceAccountToken: false
{{- end -}}

{{- define "chart.budget" -}}
{{- if gt (int .replicas) 1 }}
---
apiVersion: policy/v1
kind: PodDisruptionBudget
metadata:
  name: {{ include "chart.fullname" .root }}-{{ .name }}
  labels: {{- include "chart.labels" . | nindent 4 }}
spec:
  maxUnavailable: 1
  selector:
    matchLabels: {{- include "chart.selector" . | nindent 6 }}
{{- end }}
{{- end -}}

{{- /* Who may reach a component: `ports` from the release's own pods, `open` from everywhere, `metrics` from Prometheus.
With restricted egress: `outside`, further prefixes that it calls. */ -}}
{{- define "chart.networkPolicy" -}}
{{- if .root.Values.networkPolicy.enabled }}
---
apiVersion: networking.k8s.io/v1
kind: NetworkPolicy
metadata:
  name: {{ include "chart.fullname" .root }}-{{ .name }}
  labels: {{- include "chart.labels" . | nindent 4 }}
spec:
  podSelector:
    matchLabels: {{- include "chart.selector" . | nindent 6 }}
  policyTypes: [Ingress{{ if .root.Values.networkPolicy.egressCidrs }}, Egress{{ end }}]
  ingress:
    {{- with .ports }}
    - from:
        - podSelector:
            matchLabels:
              app.kubernetes.io/instance: {{ $.root.Release.Name }}
      ports:
        {{- range . }}
        - {protocol: TCP, port: {{ . }}}
        {{- end }}
    {{- end }}
    {{- if and .metrics (or .root.Values.networkPolicy.prometheus.namespaceLabels .root.Values.networkPolicy.prometheus.podLabels) }}
    - from:
        - namespaceSelector: {{- if .root.Values.networkPolicy.prometheus.namespaceLabels }}
            matchLabels: {{- toYaml .root.Values.networkPolicy.prometheus.namespaceLabels | nindent 14 }}
            {{- else }} {}{{ end }}
          {{- with .root.Values.networkPolicy.prometheus.podLabels }}
          podSelector:
            matchLabels: {{- toYaml . | nindent 14 }}
          {{- end }}
      ports:
        - {protocol: TCP, port: {{ .metrics }}}
    {{- end }}
    {{- with .open }}
    - ports:
        {{- range . }}
        - {protocol: TCP, port: {{ . }}}
        {{- end }}
    {{- end }}
  {{- if .root.Values.networkPolicy.egressCidrs }}
  egress:
    - to:
        - podSelector:
            matchLabels:
              app.kubernetes.io/instance: {{ .root.Release.Name }}
    - to:
        - namespaceSelector: {}
          podSelector:
            matchLabels:
              k8s-app: kube-dns
      ports:
        - {protocol: UDP, port: 53}
        - {protocol: TCP, port: 53}
    - to:
        {{- range concat .root.Values.networkPolicy.egressCidrs (default list .outside) | uniq }}
        - ipBlock: {cidr: {{ . | quote }}}
        {{- end }}
  {{- end }}
{{- end }}
{{- end -}}
