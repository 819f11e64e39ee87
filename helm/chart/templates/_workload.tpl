{{- /* One service of the control plane: account, deployment, service, budget, network policy.

root       the chart's context
name       component and console script (chart-<name>)
values     the component's values: replicas, resources
image      the image it is in; default: chart-services
role       key of the database secret; empty: no database
extra      further environment, as YAML
open       ports that everybody may reach
state      volume for /var/lib/chart, as YAML; default: emptyDir
mounts     further volume mounts, as YAML
volumes    further volumes, as YAML
ports      container ports: name -> number; default: grpc 9000, http 8080
service    spec of the Service beyond selector and ports: type
ca         the authority's certificate; default: the config map's
outside    prefixes that it calls beside networkPolicy.egressCidrs, where egress is restricted
*/ -}}
{{- define "chart.workload" -}}
{{- $full := include "chart.fullname" .root -}}
{{- $ports := default (dict "grpc" 9000 "http" 8080) .ports -}}
{{ include "chart.account" . }}
---
apiVersion: v1
kind: Service
metadata:
  name: {{ $full }}-{{ .name }}
  labels: {{- include "chart.labels" . | nindent 4 }}
spec:
  {{- if .service }}
  type: {{ .service.type }}
  {{- else }}
  # gRPC keeps its connections: each client sees every replica and spreads its calls itself.
  clusterIP: None
  {{- end }}
  selector: {{- include "chart.selector" . | nindent 4 }}
  ports:
    {{- range $port, $number := $ports }}
    - {name: {{ $port }}, port: {{ if and $.service (eq $port $.service.portName) }}{{ $.service.port }}{{ else }}{{ $number }}{{ end }}, targetPort: {{ $port }}}
    {{- end }}
---
apiVersion: apps/v1
kind: Deployment
metadata:
  name: {{ $full }}-{{ .name }}
  labels: {{- include "chart.labels" . | nindent 4 }}
spec:
  {{- if not (dig "autoscaling" "enabled" false .values) }}
  replicas: {{ .values.replicas }}
  {{- end }}
  revisionHistoryLimit: 5
  strategy:
    type: RollingUpdate
    # A new replica serves before an old one goes.
    rollingUpdate: {maxUnavailable: 0, maxSurge: 1}
  selector:
    matchLabels: {{- include "chart.selector" . | nindent 6 }}
  template:
    metadata:
      labels: {{- include "chart.labels" . | nindent 8 }}
      {{- include "chart.podAnnotations" . | nindent 6 }}
    spec:
      serviceAccountName: {{ $full }}-{{ .name }}
      automountServiceAccountToken: false
      enableServiceLinks: false
      terminationGracePeriodSeconds: 30
      {{- include "chart.pullSecrets" .root | nindent 6 }}
      {{- include "chart.podPlacement" . | nindent 6 }}
      securityContext: {{- include "chart.podSecurity" . | nindent 8 }}
      topologySpreadConstraints:
        - maxSkew: 1
          topologyKey: kubernetes.io/hostname
          whenUnsatisfiable: ScheduleAnyway
          labelSelector:
            matchLabels: {{- include "chart.selector" . | nindent 14 }}
      containers:
        - name: {{ .name }}
          image: {{ include "chart.image" (dict "root" .root "image" (default "chart-services" .image)) }}
          imagePullPolicy: {{ .root.Values.image.pullPolicy }}
          command: [chart-{{ .name }}]
          env:
            {{- include "chart.environment" (dict "root" .root "name" .name) | nindent 12 }}
            {{- include "chart.identityEnvironment" (dict "root" .root "ca" .ca) | nindent 12 }}
            {{- if .role }}
            {{- include "chart.databaseEnvironment" (dict "root" .root "role" .role) | nindent 12 }}
            {{- end }}
            {{- with .extra }}
            {{- . | nindent 12 }}
            {{- end }}
            {{- include "chart.extraEnv" . | nindent 12 }}
          ports:
            {{- range $port, $number := $ports }}
            - {name: {{ $port }}, containerPort: {{ $number }}}
            {{- end }}
          startupProbe:
            httpGet: {path: /readyz, port: http}
            periodSeconds: 2
            failureThreshold: 60
          livenessProbe:
            httpGet: {path: /healthz, port: http}
            periodSeconds: 10
            timeoutSeconds: 3
          readinessProbe:
            httpGet: {path: /readyz, port: http}
            periodSeconds: 5
            timeoutSeconds: 3
          resources: {{- toYaml .values.resources | nindent 12 }}
          securityContext: {{- include "chart.containerSecurity" . | nindent 12 }}
          volumeMounts:
            {{- include "chart.volumeMounts" (dict "root" .root "name" .name) | nindent 12 }}
            {{- if .root.Values.authority.enabled }}
            {{- include "chart.identityMounts" .root | nindent 12 }}
            {{- end }}
            {{- with .mounts }}
            {{- . | nindent 12 }}
            {{- end }}
      volumes:
        {{- default "- {name: state, emptyDir: {}}" .state | nindent 8 }}
        {{- include "chart.volumes" (dict "root" .root "name" .name) | nindent 8 }}
        {{- if .root.Values.authority.enabled }}
        {{- include "chart.identityVolumes" .root | nindent 8 }}
        {{- end }}
        {{- with .volumes }}
        {{- . | nindent 8 }}
        {{- end }}
{{- include "chart.budget" (dict "root" .root "name" .name "replicas" .values.replicas) }}
{{- include "chart.networkPolicy" (dict "root" .root "name" .name "ports" (values $ports | sortAlpha) "open" .open "metrics" 8080 "outside" .outside) }}
{{- include "chart.autoscaler" . }}
{{- end -}}
