// Package convert turns objects for other projects into objects for Tranche: pods that ask for GPUs
// in the way of KAI, HAMi, nos or a device plugin, and claims of NVIDIA's DRA driver
// (github.com/kubernetes-sigs/dra-driver-nvidia-gpu). Pure.
//
// object.go finds the pods of an object, of whatever kind; edit.go changes YAML in place, so that the
// rest of the object, with its comments, stays as it was written. pod.go tells in whose way a pod
// asks. For KAI, HAMi and nos, policy.go evaluates the expressions of the chart's admission policies
// (policies.yaml, which a test writes); hami.go translates selections that are too long for them.
// plain.go has claims for the resources of device plugins, which the policies leave alone.
//
// nvidia.go converts ResourceClaims, their templates and DeviceClasses of all API versions,
// nvidia_devices.go requests and constraints, nvidia_config.go the driver's own parameters,
// nvidia_selector.go CEL, nvidia_attributes.go has the counterparts of attributes and capacities,
// nvidia_comparison.go translates what is compared with them. What has no counterpart is an error with
// the remedy, or a note if pods work without it.
package convert
