{{/*
A job at certain times of a release, which needs nothing of it: its ServiceAccount is a hook itself, its settings are in
its environment, its Secrets were there before. (dict "root" . "component" NAME "on" HOOKS "weight" N "args" LIST
"kafkaSecret" SECRET); with `one`, a workload, it comes as that one's Kafka user.
*/}}
{{- define "tracklog.hook" -}}
{{- $hook := . -}}
{{- $root := .root -}}
{{- $name := printf "%s-%s" (include "tracklog.fullname" $root) .component -}}
apiVersion: v1
kind: ServiceAccount
metadata:
  name: {{ $name }}
  namespace: {{ $root.Release.Namespace }}
  labels:
    {{- include "tracklog.labels" $root | nindent 4 }}
    app.kubernetes.io/component: {{ $hook.component }}
  annotations:
    helm.sh/hook: {{ $hook.on }}
    helm.sh/hook-weight: "-10"
    helm.sh/hook-delete-policy: before-hook-creation,hook-succeeded
    {{- with $root.Values.defaults.serviceAccount.annotations }}
    {{- toYaml . | nindent 4 }}
    {{- end }}
automountServiceAccountToken: false
---
apiVersion: batch/v1
kind: Job
metadata:
  name: {{ $name }}
  namespace: {{ $root.Release.Namespace }}
  labels:
    {{- include "tracklog.labels" $root | nindent 4 }}
    app.kubernetes.io/component: {{ $hook.component }}
  annotations:
    helm.sh/hook: {{ $hook.on }}
    helm.sh/hook-weight: {{ $hook.weight | quote }}
    helm.sh/hook-delete-policy: before-hook-creation,hook-succeeded
    {{- with $root.Values.commonAnnotations }}
    {{- toYaml . | nindent 4 }}
    {{- end }}
spec:
  backoffLimit: {{ int64 $root.Values.topics.job.backoffLimit }}
  activeDeadlineSeconds: {{ int64 $root.Values.topics.job.activeDeadlineSeconds }}
  template:
    metadata:
      labels:
        {{- include "tracklog.labels" $root | nindent 8 }}
        app.kubernetes.io/component: {{ $hook.component }}
    spec:
      serviceAccountName: {{ $name }}
      automountServiceAccountToken: false
      enableServiceLinks: false
      restartPolicy: Never
      securityContext:
        {{- include "tracklog.podSecurity" $root | nindent 8 }}
      {{- with $root.Values.imagePullSecrets }}
      imagePullSecrets:
        {{- toYaml . | nindent 8 }}
      {{- end }}
      {{- with $root.Values.defaults.nodeSelector }}
      nodeSelector:
        {{- toYaml . | nindent 8 }}
      {{- end }}
      {{- with $root.Values.defaults.tolerations }}
      tolerations:
        {{- toYaml . | nindent 8 }}
      {{- end }}
      containers:
        - name: {{ $hook.component }}
          image: {{ include "tracklog.image" $root }}
          imagePullPolicy: {{ $root.Values.image.pullPolicy }}
          command: [tracklog]
          args: {{ toJson $hook.args }}
          env:
            {{- include "tracklog.env" $hook | nindent 12 }}
          securityContext:
            {{- include "tracklog.containerSecurity" $root | nindent 12 }}
          resources:
            {{- toYaml $root.Values.topics.job.resources | nindent 12 }}
          volumeMounts:
            {{- include "tracklog.mounts" $hook | nindent 12 }}
      volumes:
        {{- include "tracklog.volumes" $hook | nindent 8 }}
{{- end -}}
