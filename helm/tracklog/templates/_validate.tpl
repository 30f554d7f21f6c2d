{{/* What a schema cannot say. Each message begins with the key. */}}
{{- define "tracklog.validate" -}}
{{- $v := .Values -}}
{{- if not $v.kafka.bootstrapServers -}}{{- fail "kafka.bootstrapServers: is needed, HOST:PORT[,HOST:PORT] of the Kafka that is there already" -}}{{- end -}}
{{- if and $v.redis.url (contains "@" $v.redis.url) -}}{{- fail "redis.url: carries no user or password; put them into a Secret and name it in redis.existingSecret" -}}{{- end -}}
{{- if and (not $v.redis.url) (not (and $v.redis.existingSecret $v.redis.urlKey)) -}}{{- fail "redis.url: is needed, or redis.existingSecret with redis.urlKey" -}}{{- end -}}
{{- if and $v.redis.urlKey (not $v.redis.existingSecret) -}}{{- fail "redis.existingSecret: is needed with redis.urlKey" -}}{{- end -}}
{{- if and $v.blobs.url $v.blobs.existingClaim -}}{{- fail "blobs.existingClaim: not together with blobs.url" -}}{{- end -}}
{{- if not (or $v.blobs.url $v.blobs.existingClaim) -}}{{- fail "blobs.url: is needed (s3://BUCKET or gs://BUCKET), or blobs.existingClaim: all pods share one store" -}}{{- end -}}
{{- if gt (int64 $v.topics.minInsyncReplicas) (int64 $v.topics.replicationFactor) -}}{{- fail (printf "topics.minInsyncReplicas: %d can never be met with topics.replicationFactor %d" (int64 $v.topics.minInsyncReplicas) (int64 $v.topics.replicationFactor)) -}}{{- end -}}
{{- include "tracklog.validateKafka" . -}}
{{- include "tracklog.validateSecrets" . -}}
{{- include "tracklog.validateParts" . -}}
{{- include "tracklog.validateWorkloads" . -}}
{{- end -}}

{{- define "tracklog.validateKafka" -}}
{{- $v := .Values -}}
{{- $oauth := eq $v.kafka.sasl.mechanism "OAUTHBEARER" -}}
{{- if and $oauth (not $v.kafka.sasl.oauthToken) -}}{{- fail "kafka.sasl.oauthToken: is needed with OAUTHBEARER, msk:REGION or MODULE:FUNCTION" -}}{{- end -}}
{{- if and $v.kafka.sasl.oauthToken (not $oauth) -}}{{- fail "kafka.sasl.oauthToken: is for kafka.sasl.mechanism OAUTHBEARER" -}}{{- end -}}
{{- if and $v.kafka.sasl.mechanism (not $oauth) (not $v.kafka.sasl.existingSecret) (not $v.strimzi.users.enabled) -}}{{- fail "kafka.sasl.existingSecret: is needed with kafka.sasl.mechanism, for user and password" -}}{{- end -}}
{{- if and $v.kafka.tls.clientSecret (not $v.kafka.tls.enabled) -}}{{- fail "kafka.tls.enabled: must be true with kafka.tls.clientSecret" -}}{{- end -}}
{{- if and $v.kafka.tls.caSecret (not $v.kafka.tls.enabled) -}}{{- fail "kafka.tls.enabled: must be true with kafka.tls.caSecret" -}}{{- end -}}
{{- range $name, $value := $v.kafka.options -}}
{{- if contains "_" $name -}}{{- fail (printf "kafka.options: %s cannot be given by the environment; only options with dots can" $name) -}}{{- end -}}
{{- end -}}
{{- if and (or (eq $v.topics.manage "strimzi") $v.strimzi.users.enabled) (not $v.strimzi.cluster) -}}{{- fail "strimzi.cluster: is needed, the name of the Kafka object" -}}{{- end -}}
{{- if and $v.strimzi.users.enabled (not (hasPrefix "SCRAM-SHA-512" $v.kafka.sasl.mechanism)) -}}{{- fail "kafka.sasl.mechanism: must be SCRAM-SHA-512 with strimzi.users.enabled" -}}{{- end -}}
{{- if and $v.strimzi.users.enabled (eq $v.topics.manage "job") -}}{{- fail "topics.manage: must be strimzi or none with strimzi.users.enabled: the job runs before there are users" -}}{{- end -}}
{{- end -}}

{{/* Values end up in pods' descriptions and in Helm's own Secret: what is secret by its name does not belong there. */}}
{{- define "tracklog.validateSecrets" -}}
{{- $maps := dict "settings" .Values.settings "defaults.settings" .Values.defaults.settings -}}
{{- range $role, $one := .Values.components -}}{{- $_ := set $maps (printf "components.%s.settings" $role) (default dict $one.settings) -}}{{- end -}}
{{- range $list := list "agents" "tools" "extraProcessors" -}}
{{- range $index, $one := get $.Values $list -}}{{- $_ := set $maps (printf "%s[%d].settings" $list $index) (default dict $one.settings) -}}{{- end -}}
{{- end -}}
{{- range $name, $value := .Values.kafka.options -}}
{{- if regexMatch "password|secret|token|jaas|pem$|private" $name -}}{{- fail (printf "kafka.options: %s is a secret; put it into a Secret and name that in kafka.sasl, kafka.tls or secretSettings" $name) -}}{{- end -}}
{{- end -}}
{{- range $name, $value := .Values.blobs.options -}}
{{- if regexMatch "password|secret|token|private|access_key|service_account_key" $name -}}{{- fail (printf "blobs.options: %s is a secret; put it into a Secret and name that in blobs.existingSecret" $name) -}}{{- end -}}
{{- end -}}
{{- range $where, $settings := $maps -}}
{{- range $name, $value := $settings -}}
{{- if and (regexMatch "password|secret|token|jaas|pem$|private|access_key" $name) (not (regexMatch "_file$|^worker\\.relay_tokens$" $name)) -}}{{- fail (printf "%s: %s is a secret; put it into a Secret and name that in secretSettings" $where $name) -}}{{- end -}}
{{- if hasPrefix "topics." $name -}}{{- fail (printf "%s: %s is given by topics" $where $name) -}}{{- end -}}
{{- end -}}
{{- end -}}
{{- end -}}

{{- define "tracklog.validateParts" -}}
{{- $v := .Values -}}
{{- $api := $v.components.api -}}
{{- if and $api.enabled (not $api.tokensSecret) (not (or (get $v.settings "oidc.issuer") (get (default dict $api.settings) "oidc.issuer"))) -}}{{- fail "components.api.tokensSecret: is needed, or the setting oidc.issuer: without either anybody could decide about held calls" -}}{{- end -}}
{{- $export := $v.components.export -}}
{{- if and $export.enabled (not (or (get $v.settings "cold.url") (get (default dict $export.settings) "cold.url"))) -}}{{- fail "components.export.settings: cold.url is needed, where the cold tier is (s3://BUCKET/PREFIX)" -}}{{- end -}}
{{- if and $v.ingress.enabled (not $api.enabled) -}}{{- fail "components.api.enabled: must be true with ingress.enabled" -}}{{- end -}}
{{- if and $v.ingress.enabled (not $v.ingress.hosts) -}}{{- fail "ingress.hosts: is needed with ingress.enabled" -}}{{- end -}}
{{- if and $v.components.faust.enabled $v.components.processors.enabled -}}{{- fail "components.faust.enabled: runs instead of components.processors; switch one of them off" -}}{{- end -}}
{{- if and $v.components.faust.enabled (or $v.kafka.sasl.mechanism $v.kafka.tls.enabled) -}}{{- fail "components.faust.enabled: Faust speaks to Kafka in plain text only; use components.processors" -}}{{- end -}}
{{- if and $v.webhooks.urls (not $v.webhooks.existingSecret) -}}{{- fail "webhooks.existingSecret: is needed with webhooks.urls" -}}{{- end -}}
{{- if and $v.monitoring.podMonitor.enabled $v.monitoring.serviceMonitor.enabled -}}{{- fail "monitoring.serviceMonitor.enabled: not together with monitoring.podMonitor.enabled, everything would be counted twice" -}}{{- end -}}
{{- end -}}

{{- define "tracklog.validateWorkloads" -}}
{{- $v := .Values -}}
{{- $partitions := int64 $v.topics.partitions -}}
{{- $names := list -}}
{{- range (include "tracklog.workloads" . | fromYaml).items -}}
{{- if has .name $names -}}{{- fail (printf "%s.name: %s is there twice" .key .name) -}}{{- end -}}
{{- $names = append $names .name -}}
{{- $owns := ne .role "api" -}}
{{- if and $owns (eq .autoscaling.kind "none") (gt (int64 .replicas) $partitions) -}}{{- fail (printf "%s.replicas: %d pods cannot share %d partitions (topics.partitions)" .key (int64 .replicas) $partitions) -}}{{- end -}}
{{- if ne .autoscaling.kind "none" -}}
{{- if and $owns (gt (int64 .autoscaling.maxReplicas) $partitions) -}}{{- fail (printf "%s.autoscaling.maxReplicas: %d pods cannot share %d partitions (topics.partitions)" .key (int64 .autoscaling.maxReplicas) $partitions) -}}{{- end -}}
{{- if gt (int64 .autoscaling.minReplicas) (int64 .autoscaling.maxReplicas) -}}{{- fail (printf "%s.autoscaling.minReplicas: is above maxReplicas" .key) -}}{{- end -}}
{{- if not (has .role (list "worker" "dispatch" "processors")) -}}{{- fail (printf "%s.autoscaling.kind: %s has no backlog to be scaled by" .key .role) -}}{{- end -}}
{{- if and (eq .autoscaling.kind "keda") (not .autoscaling.prometheusAddress) -}}{{- fail (printf "%s.autoscaling.prometheusAddress: is needed with keda" .key) -}}{{- end -}}
{{- if and (eq .autoscaling.kind "hpa") (not .autoscaling.metric) -}}{{- fail (printf "%s.autoscaling.metric: is needed with hpa, an external metric of your metrics adapter" .key) -}}{{- end -}}
{{- end -}}
{{- if and .pdb.enabled (not (kindIs "invalid" .pdb.minAvailable)) (not (kindIs "invalid" .pdb.maxUnavailable)) -}}{{- fail (printf "%s.pdb.minAvailable: not together with maxUnavailable; set that to null" .key) -}}{{- end -}}
{{- if and (eq (toString .strategy.maxSurge) "0") (eq (toString .strategy.maxUnavailable) "0") -}}{{- fail (printf "%s.strategy.maxUnavailable: with maxSurge 0 too, an update could not begin" .key) -}}{{- end -}}
{{- end -}}
{{- end -}}
