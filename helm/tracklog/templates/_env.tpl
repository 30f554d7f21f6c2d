{{/*
How a role is told its settings: variables for what everybody may see, files for secrets (TRACKLOG_SECRETS). Nothing
here comes from an object of this release, so the hook that runs before them can use the same.
*/}}

{{- define "tracklog.securityProtocol" -}}
{{- $kafka := .Values.kafka -}}
{{- if and $kafka.sasl.mechanism $kafka.tls.enabled -}}SASL_SSL
{{- else if $kafka.sasl.mechanism -}}SASL_PLAINTEXT
{{- else if $kafka.tls.enabled -}}SSL
{{- end -}}
{{- end -}}

{{/*
Whether a pod is told how to reach the cold tier: an exporter's is, and everybody's where `settings` names it, since
everybody then reads from it what was trimmed.
*/}}
{{- define "tracklog.cold" -}}
{{- if or (get .root.Values.settings "cold.url") (eq "export" (get (default dict .one) "role")) -}}yes{{- end -}}
{{- end -}}

{{/* Settings by name -> value, of everybody. */}}
{{- define "tracklog.commonSettings" -}}
{{- $v := .Values -}}
log.url: {{ printf "kafka://%s" $v.kafka.bootstrapServers | quote }}
prefix: {{ $v.prefix | quote }}
tenant: {{ $v.tenant | quote }}
home: /var/lib/tracklog
topics.partitions: {{ int64 $v.topics.partitions }}
topics.replication_factor: {{ int64 $v.topics.replicationFactor }}
topics.min_insync_replicas: {{ int64 $v.topics.minInsyncReplicas }}
topics.max_message_bytes: {{ int64 $v.topics.maxMessageBytes | quote }}
{{- if not $v.redis.urlKey }}
redis.url: {{ $v.redis.url | quote }}
{{- end }}
blobs.url: {{ ternary "/var/lib/tracklog-blobs" $v.blobs.url (not (empty $v.blobs.existingClaim)) | quote }}
{{- range $name, $value := $v.blobs.options }}
blobs.options.{{ $name }}: {{ include "tracklog.scalar" $value | quote }}
{{- end }}
{{- with $v.registry.url }}
registry.url: {{ . | quote }}
{{- end }}
{{- with include "tracklog.securityProtocol" . }}
kafka.security.protocol: {{ . }}
{{- end }}
{{- with $v.kafka.sasl.mechanism }}
kafka.sasl.mechanism: {{ . }}
{{- end }}
{{- with $v.kafka.sasl.oauthToken }}
log.oauth_token: {{ . | quote }}
{{- end }}
{{- if $v.kafka.tls.caSecret }}
kafka.ssl.ca.location: /etc/tracklog/kafka-ca/ca.crt
{{- end }}
{{- if $v.kafka.tls.clientSecret }}
kafka.ssl.certificate.location: /etc/tracklog/kafka-client/tls.crt
kafka.ssl.key.location: /etc/tracklog/kafka-client/tls.key
{{- end }}
{{- range $name, $value := $v.kafka.options }}
kafka.{{ $name }}: {{ include "tracklog.scalar" $value | quote }}
{{- end }}
{{- end -}}

{{/* Settings of one workload, by its role. */}}
{{- define "tracklog.roleSettings" -}}
{{- $v := .root.Values -}}
{{- $one := .one -}}
{{- $patience := int64 (sub (int64 $one.terminationGracePeriodSeconds) 15) -}}
health.listen: {{ printf "0.0.0.0:%d" (int64 $v.health.port) | quote }}
logging.format: json
{{- if and $v.strimzi.users.enabled (not $one.kafkaSecret) }}
kafka.sasl.username: {{ include "tracklog.user" . | quote }}
{{- end }}
{{- if eq $one.role "worker" }}
worker.move_wait_s: {{ $patience }}
worker.dispatches: {{ .dispatches | quote }}
{{- with $one.group }}
worker.group: {{ . | quote }}
{{- end }}
{{- if .fleets }}
worker.refuse_unknown: "false"
{{- end }}
{{- else if eq $one.role "dispatch" }}
dispatch.move_wait_s: {{ $patience }}
{{- with $one.group }}
dispatch.group: {{ . | quote }}
{{- end }}
{{- else if eq $one.role "api" }}
api.host: 0.0.0.0
api.port: {{ int64 $one.port }}
{{- with $one.tokensSecret }}
api.tokens_file: /etc/tracklog/api-tokens/tokens.toml
{{- end }}
{{- else if and (eq $one.role "route") $v.webhooks.urls }}
webhooks.urls: {{ join "," $v.webhooks.urls | quote }}
webhooks.secret_file: /etc/tracklog/webhooks/secrets
{{- with $v.webhooks.answerUrl }}
webhooks.answer_url: {{ . | quote }}
{{- end }}
{{- end }}
{{- end -}}

{{/* (dict "root" . "one" WORKLOAD ...) as `env`; without `one`, what the hook and the test need. */}}
{{- define "tracklog.env" -}}
{{- $settings := include "tracklog.commonSettings" .root | fromYaml -}}
{{- $sources := list .root.Values.settings -}}
{{- if include "tracklog.cold" . -}}
{{- range $name, $value := .root.Values.blobs.options -}}
{{- $_ := set $settings (printf "cold.options.%s" $name) (include "tracklog.scalar" $value) -}}
{{- end -}}
{{- end -}}
{{- if .one -}}
{{- $role := include "tracklog.roleSettings" . | fromYaml -}}
{{- $settings = merge (dict) $role $settings -}}
{{- $sources = append $sources .one.settings -}}
{{- end -}}
{{- range $source := $sources -}}
{{- range $name, $value := $source -}}
{{- $_ := set $settings $name (include "tracklog.scalar" $value) -}}
{{- end -}}
{{- end -}}
- name: TRACKLOG_SECRETS
  value: /etc/tracklog/secrets
{{- range $name, $value := $settings }}
- name: {{ include "tracklog.variable" $name }}
  value: {{ include "tracklog.scalar" $value | quote }}
{{- end }}
- name: TMPDIR
  value: /tmp
- name: PYTHONUNBUFFERED
  value: "1"
{{- if .one }}
{{- with .one.env }}
{{ toYaml . }}
{{- end }}
{{- end }}
{{- end -}}

{{/* Secret -> [[key, file], ...]: the files in TRACKLOG_SECRETS, each named as its setting. As YAML, under `items`. */}}
{{- define "tracklog.secretFiles" -}}
{{- $v := .root.Values -}}
{{- $own := default "" .kafkaSecret -}}
{{- $strimzi := "" -}}
{{- $cold := include "tracklog.cold" . -}}
{{- if .one -}}
{{- $own = .one.kafkaSecret -}}
{{- if and $v.strimzi.users.enabled (not $own) -}}{{- $strimzi = include "tracklog.user" . -}}{{- end -}}
{{- end -}}
items:
{{- if $strimzi }}
- {secret: {{ $strimzi }}, key: password, path: kafka.sasl.password}
{{- else if and $v.kafka.sasl.mechanism (not $v.kafka.sasl.oauthToken) }}
- {secret: {{ $own | default $v.kafka.sasl.existingSecret | quote }}, key: {{ $v.kafka.sasl.usernameKey | quote }}, path: kafka.sasl.username}
- {secret: {{ $own | default $v.kafka.sasl.existingSecret | quote }}, key: {{ $v.kafka.sasl.passwordKey | quote }}, path: kafka.sasl.password}
{{- end }}
{{- if $v.redis.existingSecret }}
{{- if $v.redis.urlKey }}
- {secret: {{ $v.redis.existingSecret | quote }}, key: {{ $v.redis.urlKey | quote }}, path: redis}
{{- else }}
- {secret: {{ $v.redis.existingSecret | quote }}, key: {{ $v.redis.passwordKey | quote }}, path: redis.password}
{{- with $v.redis.usernameKey }}
- {secret: {{ $v.redis.existingSecret | quote }}, key: {{ . | quote }}, path: redis.username}
{{- end }}
{{- end }}
{{- end }}
{{- if $v.blobs.existingSecret }}
{{- range $option, $key := $v.blobs.secretKeys }}
- {secret: {{ $v.blobs.existingSecret | quote }}, key: {{ $key | quote }}, path: blobs.options.{{ $option }}}
{{- if $cold }}
- {secret: {{ $v.blobs.existingSecret | quote }}, key: {{ $key | quote }}, path: cold.options.{{ $option }}}
{{- end }}
{{- end }}
{{- end }}
{{- if $v.registry.existingSecret }}
- {secret: {{ $v.registry.existingSecret | quote }}, key: {{ $v.registry.usernameKey | quote }}, path: registry.username}
- {secret: {{ $v.registry.existingSecret | quote }}, key: {{ $v.registry.passwordKey | quote }}, path: registry.password}
{{- end }}
{{- range $v.secretSettings }}
- {secret: {{ .secret | quote }}, key: {{ .key | quote }}, path: {{ .setting | quote }}}
{{- end }}
{{- end -}}

{{- define "tracklog.volumes" -}}
{{- $v := .root.Values -}}
{{- $files := (include "tracklog.secretFiles" . | fromYaml).items -}}
- name: tmp
  emptyDir: {sizeLimit: 1Gi}
- name: home
  emptyDir: {sizeLimit: 1Gi}
- name: secrets
  projected:
    defaultMode: 0440
    sources:
    {{- range $files }}
      - secret:
          name: {{ .secret }}
          items: [{key: {{ .key | quote }}, path: {{ .path | quote }}}]
    {{- else }} []
    {{- end }}
{{- with $v.kafka.tls.caSecret }}
- name: kafka-ca
  secret:
    secretName: {{ . }}
    defaultMode: 0440
    items: [{key: {{ $v.kafka.tls.caKey | quote }}, path: ca.crt}]
{{- end }}
{{- with $v.kafka.tls.clientSecret }}
- name: kafka-client
  secret:
    secretName: {{ . }}
    defaultMode: 0440
    items: [{key: {{ $v.kafka.tls.certKey | quote }}, path: tls.crt}, {key: {{ $v.kafka.tls.keyKey | quote }}, path: tls.key}]
{{- end }}
{{- with $v.redis.caSecret }}
- name: redis-tls
  secret:
    secretName: {{ . }}
    defaultMode: 0440
    items: [{key: ca.crt, path: ca.crt}]
{{- end }}
{{- with $v.blobs.existingClaim }}
- name: blobs
  persistentVolumeClaim: {claimName: {{ . }}}
{{- end }}
{{- if .one }}
{{- if eq .one.role "api" }}
{{- with .one.tokensSecret }}
- name: api-tokens
  secret:
    secretName: {{ . }}
    defaultMode: 0440
    items: [{key: {{ $.one.tokensKey | quote }}, path: tokens.toml}]
{{- end }}
{{- end }}
{{- if and (eq .one.role "route") $v.webhooks.urls }}
- name: webhooks
  secret:
    secretName: {{ $v.webhooks.existingSecret }}
    defaultMode: 0440
    items: [{key: {{ $v.webhooks.key | quote }}, path: secrets}]
{{- end }}
{{- with .one.volumes }}
{{ toYaml . }}
{{- end }}
{{- end }}
{{- end -}}

{{- define "tracklog.mounts" -}}
{{- $v := .root.Values -}}
- {name: tmp, mountPath: /tmp}
- {name: home, mountPath: /var/lib/tracklog}
- {name: secrets, mountPath: /etc/tracklog/secrets, readOnly: true}
{{- if $v.kafka.tls.caSecret }}
- {name: kafka-ca, mountPath: /etc/tracklog/kafka-ca, readOnly: true}
{{- end }}
{{- if $v.kafka.tls.clientSecret }}
- {name: kafka-client, mountPath: /etc/tracklog/kafka-client, readOnly: true}
{{- end }}
{{- if $v.redis.caSecret }}
- {name: redis-tls, mountPath: /etc/tracklog/redis-tls, readOnly: true}
{{- end }}
{{- if $v.blobs.existingClaim }}
- {name: blobs, mountPath: /var/lib/tracklog-blobs}
{{- end }}
{{- if .one }}
{{- if and (eq .one.role "api") .one.tokensSecret }}
- {name: api-tokens, mountPath: /etc/tracklog/api-tokens, readOnly: true}
{{- end }}
{{- if and (eq .one.role "route") $v.webhooks.urls }}
- {name: webhooks, mountPath: /etc/tracklog/webhooks, readOnly: true}
{{- end }}
{{- with .one.volumeMounts }}
{{ toYaml . }}
{{- end }}
{{- end }}
{{- end -}}

{{/* Changes when a Secret does, where the chart can see it: pods then roll. */}}
{{- define "tracklog.secretsChecksum" -}}
{{- $root := .root -}}
{{- $names := list -}}
{{- range (include "tracklog.secretFiles" . | fromYaml).items -}}{{- $names = append $names .secret -}}{{- end -}}
{{- $names = concat $names (compact (list $root.Values.kafka.tls.caSecret $root.Values.kafka.tls.clientSecret $root.Values.redis.caSecret)) -}}
{{- $seen := list $root.Values.secretsVersion -}}
{{- range $name := $names | uniq | sortAlpha -}}
{{- $found := lookup "v1" "Secret" $root.Release.Namespace $name -}}
{{- if $found -}}{{- $seen = append $seen (toJson $found.data) -}}{{- end -}}
{{- end -}}
{{- join "\n" $seen | sha256sum -}}
{{- end -}}
