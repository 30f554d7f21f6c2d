{{/*
What runs: components, and fleets of `agents`, `tools`, `extraProcessors`, each with all its keys. `name` is its name in
objects, `role` what it does, `key` where it is in the values. As YAML, under `items`.
*/}}
{{- define "tracklog.workloads" -}}
{{- $root := . -}}
{{- $items := list -}}
{{- range $role := list "worker" "dispatch" "processors" "route" "api" "export" "faust" -}}
{{- $own := include "tracklog.over" (list $root.Values.defaults (get $root.Values.components $role)) | fromYaml -}}
{{- $listed := has $role (list "worker" "dispatch") -}}
{{- if and $own.enabled (or (not $listed) $own.modules) -}}
{{- $items = append $items (merge (dict "name" $role "role" $role "key" (printf "components.%s" $role)) $own) -}}
{{- end -}}
{{- end -}}
{{- range $kind := list (list "agents" "worker" "agents") (list "tools" "dispatch" "tools") (list "extraProcessors" "processors" "processor") -}}
{{- $role := index $kind 1 -}}
{{- $base := include "tracklog.over" (list $root.Values.defaults (pick (get $root.Values.components $role) "terminationGracePeriodSeconds")) | fromYaml -}}
{{- range $index, $one := get $root.Values (index $kind 0) -}}
{{- $own := include "tracklog.over" (list $base $one) | fromYaml -}}
{{- $name := printf "%s-%s" (index $kind 2) $one.name -}}
{{- $group := ternary (printf "%s-%s" (ternary "workers" "dispatch" (eq $role "worker")) $one.name) "" (ne $role "processors") -}}
{{- $key := printf "%s[%d]" (index $kind 0) $index -}}
{{- $items = append $items (merge (dict "name" $name "role" $role "key" $key "group" $group "title" $one.name) (omit $own "name")) -}}
{{- end -}}
{{- end -}}
items:
  {{- toYaml $items | nindent 2 }}
{{- end -}}

{{- define "tracklog.args" -}}
{{- $one := . -}}
{{- if eq .role "worker" }}
- worker
{{- range .modules }}
- {{ . | quote }}
{{- end }}
{{- else if eq .role "dispatch" }}
- dispatch
{{- range .modules }}
- {{ . | quote }}
{{- end }}
{{- else if has .role (list "processors" "faust") }}
- process
{{- if eq .role "faust" }}
- --runner
- faust
{{- end }}
{{- if hasPrefix "extraProcessors" .key }}
- {{ .title | quote }}
{{- with .module }}
- --load
- {{ . | quote }}
{{- end }}
{{- else }}
{{- range .names }}
- {{ . | quote }}
{{- end }}
{{- end }}
{{- else if eq .role "api" }}
- serve
{{- else }}
- {{ .role }}
{{- end }}
{{- end -}}

{{- define "tracklog.user" -}}
{{- printf "%s-%s" (include "tracklog.fullname" .root) .one.role -}}
{{- end -}}

{{- define "tracklog.serviceAccount" -}}
{{- .one.serviceAccount.name | default (ternary (printf "%s-%s" (include "tracklog.fullname" .root) .one.name) "default" .one.serviceAccount.create) -}}
{{- end -}}
