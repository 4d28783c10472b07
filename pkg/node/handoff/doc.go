// Package handoff coordinates two kubelet plugins on one node during a rolling update. They share
// the plugin's folder if they belong to the same installation (lock.go), and one at a time
// publishes and changes GPUs (turn.go). A plugin is ready once the kubelet has registered it
// (registration.go).
package handoff
