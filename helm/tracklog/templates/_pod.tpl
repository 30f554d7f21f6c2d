{{- define "tracklog.podSecurity" -}}
runAsNonRoot: true
runAsUser: {{ int64 .Values.podSecurityContext.runAsUser }}
runAsGroup: {{ int64 .Values.podSecurityContext.runAsGroup }}
fsGroup: {{ int64 .Values.podSecurityContext.runAsGroup }}
fsGroupChangePolicy: OnRootMismatch
seccompProfile: {type: RuntimeDefault}
{{- end -}}

{{- define "tracklog.containerSecurity" -}}
allowPrivilegeEscalation: false
readOnlyRootFilesystem: true
runAsNonRoot: true
runAsUser: {{ int64 .Values.podSecurityContext.runAsUser }}
runAsGroup: {{ int64 .Values.podSecurityContext.runAsGroup }}
capabilities: {drop: [ALL]}
{{- end -}}

{{/* Liveness is progress, readiness also log and store: a broker that is away restarts nothing. */}}
{{- define "tracklog.probes" -}}
{{- $p := .probes -}}
startupProbe:
  httpGet: {path: /healthz, port: health}
  periodSeconds: 2
  timeoutSeconds: {{ int64 $p.timeoutSeconds }}
  failureThreshold: {{ int64 $p.startupFailures }}
readinessProbe:
  httpGet: {path: /readyz, port: health}
  periodSeconds: {{ int64 $p.readinessPeriodSeconds }}
  timeoutSeconds: {{ int64 $p.timeoutSeconds }}
  failureThreshold: 3
livenessProbe:
  httpGet: {path: /healthz, port: health}
  periodSeconds: {{ int64 $p.livenessPeriodSeconds }}
  timeoutSeconds: {{ int64 $p.timeoutSeconds }}
  failureThreshold: {{ int64 $p.livenessFailures }}
{{- end -}}

{{- define "tracklog.spread" -}}
{{- $labels := printf "%s\napp.kubernetes.io/component: %s" (include "tracklog.selector" .root) .one.name -}}
{{- range $key := list "topology.kubernetes.io/zone" "kubernetes.io/hostname" }}
- maxSkew: 1
  topologyKey: {{ $key }}
  whenUnsatisfiable: {{ $.one.topologySpread.whenUnsatisfiable }}
  labelSelector:
    matchLabels:
      {{- $labels | nindent 6 }}
{{- end }}
{{- end -}}

{{/* The pod of a workload. */}}
{{- define "tracklog.pod" -}}
{{- $one := .one -}}
serviceAccountName: {{ include "tracklog.serviceAccount" . }}
automountServiceAccountToken: {{ $one.serviceAccount.token }}
enableServiceLinks: false
terminationGracePeriodSeconds: {{ int64 $one.terminationGracePeriodSeconds }}
securityContext:
  {{- include "tracklog.podSecurity" .root | nindent 2 }}
{{- with .root.Values.imagePullSecrets }}
imagePullSecrets:
  {{- toYaml . | nindent 2 }}
{{- end }}
{{- with $one.priorityClassName }}
priorityClassName: {{ . }}
{{- end }}
{{- with $one.nodeSelector }}
nodeSelector:
  {{- toYaml . | nindent 2 }}
{{- end }}
{{- with $one.tolerations }}
tolerations:
  {{- toYaml . | nindent 2 }}
{{- end }}
{{- with $one.affinity }}
affinity:
  {{- toYaml . | nindent 2 }}
{{- end }}
{{- if $one.topologySpread.enabled }}
topologySpreadConstraints:
  {{- include "tracklog.spread" . | trim | nindent 2 }}
{{- end }}
containers:
  - name: {{ $one.role }}
    image: {{ $one.image | default (include "tracklog.image" .root) }}
    imagePullPolicy: {{ .root.Values.image.pullPolicy }}
    command: [tracklog]
    args:
      {{- include "tracklog.args" $one | trim | nindent 6 }}
    env:
      {{- include "tracklog.env" . | nindent 6 }}
    {{- with $one.envFrom }}
    envFrom:
      {{- toYaml . | nindent 6 }}
    {{- end }}
    ports:
      - {name: health, containerPort: {{ int64 .root.Values.health.port }}, protocol: TCP}
      {{- if eq $one.role "api" }}
      - {name: http, containerPort: {{ int64 $one.port }}, protocol: TCP}
      {{- end }}
    {{- include "tracklog.probes" $one | nindent 4 }}
    {{- if and (eq $one.role "api") $one.drainSeconds }}
    lifecycle:
      preStop:
        sleep: {seconds: {{ int64 $one.drainSeconds }}}
    {{- end }}
    securityContext:
      {{- include "tracklog.containerSecurity" .root | nindent 6 }}
    resources:
      {{- toYaml $one.resources | nindent 6 }}
    volumeMounts:
      {{- include "tracklog.mounts" . | nindent 6 }}
volumes:
  {{- include "tracklog.volumes" . | nindent 2 }}
{{- end -}}
