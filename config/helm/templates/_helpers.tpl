{{/* The values in force, as YAML: those under `pilot` over those at the top level. */}}
{{- define "pilothouse.values" -}}
{{- $values := deepCopy .Values -}}
{{- $under := deepCopy (.Values.pilot | default dict) -}}
{{- mustMergeOverwrite (omit $values "pilot") $under | toYaml -}}
{{- end -}}

{{/* Suffix of a name by revision. */}}
{{- define "pilothouse.suffix" -}}
{{- with .Values.revision }}-{{ . }}{{ end -}}
{{- end -}}

{{/* Name of the Deployment, of the Service that proxies dial, and of all beside them: istiod's. */}}
{{- define "pilothouse.name" -}}
istiod{{ include "pilothouse.suffix" . }}
{{- end -}}

{{/* Labels of every object. */}}
{{- define "pilothouse.labels" -}}
app: istiod
istio.io/rev: {{ .Values.revision | default "default" | quote }}
app.kubernetes.io/name: istiod
app.kubernetes.io/instance: {{ .Release.Name | quote }}
app.kubernetes.io/managed-by: {{ .Release.Service | quote }}
app.kubernetes.io/part-of: istio
app.kubernetes.io/version: {{ .Chart.AppVersion | quote }}
helm.sh/chart: {{ printf "%s-%s" .Chart.Name .Chart.Version | replace "+" "_" | trunc 63 | trimSuffix "-" }}
{{- end -}}

{{/* Labels that select the Pods of this revision. */}}
{{- define "pilothouse.selector" -}}
app: istiod
{{- if .Values.revision }}
istio.io/rev: {{ .Values.revision | quote }}
{{- else }}
istio: pilot
{{- end }}
{{- end -}}

{{/* Whether a part of the chart is wanted: `namespace` or `cluster`. */}}
{{- define "pilothouse.wants" -}}
{{- if or (eq .root.Values.global.resourceScope "all") (eq .root.Values.global.resourceScope .scope) }}true{{ end -}}
{{- end -}}

{{/* The image. */}}
{{- define "pilothouse.image" -}}
{{- $v := .v -}}
{{- if contains "/" $v.image -}}
{{ $v.image }}
{{- else -}}
{{- $hub := $v.hub | default $v.global.hub -}}
{{- with $hub }}{{ . }}/{{ end }}{{ $v.image }}:{{ $v.tag | default $v.global.tag | default .root.Chart.AppVersion }}
{{- end -}}
{{- end -}}

{{/* The value at a dotted path, as JSON; empty where there is none. */}}
{{- define "pilothouse.at" -}}
{{- $at := .values -}}
{{- range splitList "." .path -}}
{{- if kindIs "map" $at -}}{{- $at = get $at . -}}{{- else -}}{{- $at = "" -}}{{- end -}}
{{- end -}}
{{- if not (kindIs "invalid" $at) }}{{ $at | toJson }}{{ end -}}
{{- end -}}

{{/*
Ends the rendering where a value asks for something that is not here. A row: path, the values that ask for nothing, reason.
*/}}
{{- define "pilothouse.refuse" -}}
{{- $v := include "pilothouse.values" . | fromYaml -}}
{{- $root := . -}}
{{- $rows := list
  (list "istiodRemote.enabled" (list "false") "a remote cluster is joined by a Secret with its kubeconfig, in the cluster of the control plane")
  (list "istiodRemote.enabledLocalInjectorIstiod" (list "false") "sidecars are not injected")
  (list "global.configCluster" (list "false") "name the cluster with the config by the Secret istio-kubeconfig and global.externalIstiod")
  (list "global.remotePilotAddress" (list "\"\"") "install this chart where the control plane runs")
  (list "global.pilotCertProvider" (list "\"\"" "\"istiod\"") "certificates come from the Secrets cacerts or istio-ca-secret")
  (list "global.caName" (list "\"\"") "certificates come from the Secrets cacerts or istio-ca-secret")
  (list "global.caAddress" (list "\"\"") "certificates come from the Secrets cacerts or istio-ca-secret")
  (list "global.certSigners" (list "[]" "null") "certificates come from the Secrets cacerts or istio-ca-secret")
  (list "global.trustBundleName" (list "\"\"" "\"istio-ca-root-cert\"") "roots are told by the ConfigMap istio-ca-root-cert")
  (list "crlConfigMapName" (list "\"\"" "\"istio-ca-crl\"") "revoked certificates are told by the ConfigMap istio-ca-crl")
  (list "revisionTags" (list "[]" "null") "a tag is a label istio.io/tag on a Service or a MutatingWebhookConfiguration of its own")
  (list "taint.enabled" (list "false") "nodes are not untainted")
  (list "cni.enabled" (list "false") "traffic of Pods is not intercepted")
  (list "profile" (list "\"\"") "there are no profiles: copy the values that are wanted")
  (list "global.profile" (list "\"\"") "there are no profiles: copy the values that are wanted")
  (list "compatibilityVersion" (list "\"\"") "set the flags of that version under env")
  (list "trustedZtunnelNamespace" (list "\"\"") "ambient mode is not served")
  (list "trustedZtunnelName" (list "\"\"") "ambient mode is not served")
  (list "telemetry.v2.stackdriver.enabled" (list "false") "the provider is not served")
  (list "gatewayClasses" (list "{}" "null") "Deployments of managed Gateways are not made")
  (list "global.sts.servicePort" (list "0") "there is no token exchange")
  (list "variant" (list "\"\"") "there is one image: name another by image")
  (list "global.variant" (list "\"\"") "there is one image: name another by image")
-}}
{{- range $rows -}}
{{- $found := include "pilothouse.at" (dict "values" $v "path" (index . 0)) -}}
{{- if and $found (not (has $found (append (index . 1) "\"\""))) -}}
{{- fail (printf "%s: %s is not possible here: %s" (index . 0) $found (index . 2)) -}}
{{- end -}}
{{- end -}}
{{- if or (eq $v.image "pilot") (regexMatch "/pilot(:|@|$)" $v.image) -}}
{{- fail (printf "image: %s is not possible here: that is istiod's image" ($v.image | toJson)) -}}
{{- end -}}
{{- end -}}

{{/* The values of Istio's chart that are given and change nothing here, one a line. */}}
{{- define "pilothouse.named" -}}
{{- $v := include "pilothouse.values" . | fromYaml -}}
{{- $paths := list "base" "cni" "defaults" "enhancedResourceScoping" "experimental" "gateways" "istiodRemote" "istio_cni"
  "ownerName" "platform" "sidecarInjectorWebhook" "sidecarInjectorWebhookAnnotations" "taint" "terminationMessagePolicy"
  "ztunnel" "global.agentgateway" "global.autoscalingv2API" "global.configValidation" "global.mountMtlsCerts"
  "global.nativeNftables" "global.network" "global.omitSidecarInjectorConfigMap" "global.oneNamespace"
  "global.operatorManageWebhooks" "global.platform" "global.podDNSSearchNamespaces" "global.proxy_init"
  "global.proxy.autoInject" "global.proxy.componentLogLevel" "global.proxy.excludeIPRanges"
  "global.proxy.excludeInboundPorts" "global.proxy.excludeOutboundPorts" "global.proxy.image"
  "global.proxy.includeIPRanges" "global.proxy.includeInboundPorts" "global.proxy.includeOutboundPorts"
  "global.proxy.lifecycle" "global.proxy.logLevel" "global.proxy.outlierLogPath" "global.proxy.privileged"
  "global.proxy.readinessFailureThreshold" "global.proxy.readinessInitialDelaySeconds" "global.proxy.readinessPeriodSeconds"
  "global.proxy.resources" "global.proxy.seccompProfile" "global.proxy.startupProbe" "global.proxy.statusPort"
  "global.proxy.variant" "global.waypoint" -}}
{{- range $paths -}}
{{- if not (has (include "pilothouse.at" (dict "values" $v "path" .)) (list "" "\"\"" "{}" "[]")) }}
{{ . }}
{{- end -}}
{{- end -}}
{{- end -}}
