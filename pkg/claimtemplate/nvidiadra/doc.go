// Package nvidiadra converts objects for NVIDIA's DRA driver (github.com/kubernetes-sigs/dra-driver-nvidia-gpu):
// ResourceClaims, their templates and DeviceClasses. Pure.
//
// convert.go decodes the objects of all API versions and prints them, devices.go converts requests and
// constraints, config.go the driver's own parameters. selector.go translates CEL, attributes.go has the
// counterparts of attributes and capacities, comparison.go translates what is compared with them.
//
// What has no counterpart is an error with the remedy, or a note if pods work without it.
package nvidiadra
