// Package dcm converts the config.json of AMD's device config manager, which the AMD GPU operator
// runs, to PartitionProfiles.
//
// There are two generations, told apart by nothing but their rules: in the older one
// (proto/partition.proto of device-config-manager 1.3) every entry of a profile has a number of
// GPUs; in the newer one (docs/configuration/configmap.md of 1.5) one entry can leave it out and has
// the rest. In both, the numbers and the skipped GPUs must add up to the GPUs of the node. That
// cannot be checked without a node: here, a node with fewer GPUs does not fit, and on one with more,
// the others are left as they are.
//
// Keys can be in any case, because the device config manager reads them so. Unknown keys, which it
// ignores, are errors.
package dcm
