// Package handoff lets one kubelet plugin follow another on a node, as in a rolling update:
// plugins of one installation share the plugin's folder, one at a time publishes and
// changes GPUs, and each is ready once the kubelet has registered it.
//
// Imports: none.
package handoff
