{{/* Names and labels, and small things that Helm lacks. */}}

{{- define "tracklog.name" -}}
{{- default .Chart.Name .Values.nameOverride | trunc 40 | trimSuffix "-" -}}
{{- end -}}

{{- define "tracklog.fullname" -}}
{{- if .Values.fullnameOverride -}}
{{- .Values.fullnameOverride | trunc 40 | trimSuffix "-" -}}
{{- else -}}
{{- $name := include "tracklog.name" . -}}
{{- if contains $name .Release.Name -}}
{{- .Release.Name | trunc 40 | trimSuffix "-" -}}
{{- else -}}
{{- printf "%s-%s" .Release.Name $name | trunc 40 | trimSuffix "-" -}}
{{- end -}}
{{- end -}}
{{- end -}}

{{- define "tracklog.selector" -}}
app.kubernetes.io/name: {{ include "tracklog.name" . }}
app.kubernetes.io/instance: {{ .Release.Name }}
{{- end -}}

{{- define "tracklog.labels" -}}
{{ include "tracklog.selector" . }}
app.kubernetes.io/version: {{ .Values.image.tag | default .Chart.AppVersion | trunc 63 | quote }}
app.kubernetes.io/part-of: tracklog
app.kubernetes.io/managed-by: {{ .Release.Service }}
helm.sh/chart: {{ printf "%s-%s" .Chart.Name .Chart.Version | replace "+" "_" | trunc 63 | trimSuffix "-" }}
{{- with .Values.commonLabels }}
{{ toYaml . }}
{{- end }}
{{- end -}}

{{- define "tracklog.image" -}}
{{- if .Values.image.digest -}}
{{- printf "%s@%s" .Values.image.repository .Values.image.digest -}}
{{- else -}}
{{- printf "%s:%s" .Values.image.repository (.Values.image.tag | default .Chart.AppVersion) -}}
{{- end -}}
{{- end -}}

{{/* A number from values is a float; large ones must not become 1e+06. */}}
{{- define "tracklog.scalar" -}}
{{- if kindIs "float64" . -}}
{{- if eq (floor .) . -}}{{ int64 . }}{{- else -}}{{ . }}{{- end -}}
{{- else -}}
{{ . }}
{{- end -}}
{{- end -}}

{{/* (list BASE OVER): BASE with the keys of OVER; maps are joined one level deep, `false` and `0` count. As YAML. */}}
{{- define "tracklog.over" -}}
{{- $made := deepCopy (index . 0) -}}
{{- range $key, $value := index . 1 -}}
{{- if and (kindIs "map" $value) (kindIs "map" (get $made $key)) -}}
{{- $inner := get $made $key -}}
{{- range $k, $v := $value -}}{{- $_ := set $inner $k $v -}}{{- end -}}
{{- else -}}
{{- $_ := set $made $key $value -}}
{{- end -}}
{{- end -}}
{{- toYaml $made -}}
{{- end -}}

{{/* A setting's variable: writer.barrier -> TRACKLOG_WRITER__BARRIER, kafka.sasl.mechanism -> TRACKLOG_KAFKA_SASL_MECHANISM. */}}
{{- define "tracklog.variable" -}}
{{- if hasPrefix "kafka." . -}}
{{- printf "TRACKLOG_%s" (. | replace "." "_" | upper) -}}
{{- else -}}
{{- printf "TRACKLOG_%s" (trimSuffix ".url" . | replace "." "__" | upper) -}}
{{- end -}}
{{- end -}}

{{/* Annotations of an object: (list ROOT EXTRA). */}}
{{- define "tracklog.annotations" -}}
{{- with merge (dict) (index . 1) (index . 0).Values.commonAnnotations -}}
annotations:
  {{- toYaml . | nindent 2 }}
{{- end }}
{{- end -}}

{{- define "tracklog.strimziNamespace" -}}
{{- .Values.strimzi.namespace | default .Release.Namespace -}}
{{- end -}}
