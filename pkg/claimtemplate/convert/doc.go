// Package convert converts objects of other projects to objects for Tranche: pods that request GPUs in
// the format of KAI, HAMi, nos or a device plugin, and claims of NVIDIA's DRA driver
// (github.com/kubernetes-sigs/dra-driver-nvidia-gpu). Pure. Whatever has no counterpart is an error with
// the remedy, or a note if pods work without it.
//
// Pods:
//
//   - object.go: finds the pods of an object of any kind; edit.go: edits YAML in place, with its comments
//   - pod.go: detects the format of a pod; policy.go: evaluates the chart's admission policies for KAI,
//     HAMi and nos (policies.yaml, which a test writes)
//   - hami.go: selections that are too long for the policies; plain.go: resources of device plugins
//
// Claims:
//
//   - nvidia.go: ResourceClaims, templates and DeviceClasses of all API versions
//   - nvidia_devices.go: requests and constraints; nvidia_config.go: the driver's parameters
//   - nvidia_selector.go: CEL; nvidia_attributes.go: counterparts of attributes and capacities;
//     nvidia_comparison.go: comparisons with them
package convert
