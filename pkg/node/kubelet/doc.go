// Package kubelet is the plugin towards the kubelet. driver.go answers the kubelet's calls for
// claims, metadata.go describes devices to workloads, devicehealth.go reports the health of
// allocated devices.
//
// During a rolling update, two plugins share the plugin's folder if they belong to the same
// installation (lock.go), and one at a time publishes and changes GPUs (lead.go). A plugin is ready
// once the kubelet has registered it (registration.go).
package kubelet
