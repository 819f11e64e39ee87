{{- /* A hook job before installation and upgrade: account and job with the services' image.

root, name, command (list), weight, role (key of the database secret as CHART_DATABASE_ADMIN_URL; empty: none) */ -}}
{{- define "chart.job" -}}
{{- $hook := dict "helm.sh/hook" "pre-install,pre-upgrade" "helm.sh/hook-weight" (.weight | toString) "helm.sh/hook-delete-policy" "before-hook-creation,hook-succeeded" -}}
{{ include "chart.account" (dict "root" .root "name" .name "annotations" (merge (dict "helm.sh/hook-weight" (sub .weight 1 | toString)) $hook)) }}
---
apiVersion: batch/v1
kind: Job
metadata:
  name: {{ include "chart.fullname" .root }}-{{ .name }}
  labels: {{- include "chart.labels" . | nindent 4 }}
  annotations: {{- toYaml $hook | nindent 4 }}
spec:
  backoffLimit: 3
  activeDeadlineSeconds: 600
  template:
    metadata:
      labels: {{- include "chart.labels" . | nindent 8 }}
    spec:
      restartPolicy: Never
      serviceAccountName: {{ include "chart.fullname" .root }}-{{ .name }}
      automountServiceAccountToken: false
      enableServiceLinks: false
      {{- include "chart.pullSecrets" .root | nindent 6 }}
      {{- include "chart.placement" .root.Values.podDefaults | nindent 6 }}
      securityContext: {{- include "chart.podSecurity" . | nindent 8 }}
      containers:
        - name: {{ .name }}
          image: {{ include "chart.image" (dict "root" .root "image" "chart-services") }}
          imagePullPolicy: {{ .root.Values.image.pullPolicy }}
          command: {{ toJson .command }}
          env:
            {{- include "chart.environment" (dict "root" .root "name" .name) | nindent 12 }}
            {{- if .role }}
            - name: CHART_DATABASE_ADMIN_URL
              valueFrom:
                secretKeyRef: {name: {{ required "database.secret is missing: the secret with the connection addresses" .root.Values.database.secret }}, key: {{ .role }}}
            {{- end }}
            {{- include "chart.extraEnv" (dict "root" .root "values" dict) | nindent 12 }}
          resources:
            requests: {cpu: 50m, memory: 128Mi}
            limits: {memory: 512Mi}
          securityContext: {{- include "chart.containerSecurity" . | nindent 12 }}
          volumeMounts: {{- include "chart.volumeMounts" (dict "root" .root "name" .name) | nindent 12 }}
      volumes:
        - {name: state, emptyDir: {}}
        {{- include "chart.volumes" (dict "root" .root "name" .name) | nindent 8 }}
{{- end -}}
