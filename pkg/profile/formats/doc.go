// Package formats converts the configurations of other projects to PartitionProfiles: those of
// mig-parted, NVIDIA's device plugin and DRA driver, AMD's device config manager, Kaiwo and nos. It
// detects which project's a file is. Unknown keys are errors in all files.
//
// read.go splits files into documents and unwraps ConfigMaps and lists. detect.go detects whose a file
// is, objects.go reads the objects of projects, the labels of nodes, and objects with pods. parse.go
// has files converted, and names the PartitionProfiles. helm.go finds files in the values of Helm
// charts, combine.go combines two labels of a Node, distinct.go finds names that are there twice.
// profile.go has what the readers return.
//
// mig_parted.go and the other files with mig_ read files of NVIDIA's mig-parted (version v1), which
// the MIG manager of the GPU operator applies. The keys and their meaning are those of mig-parted
// 0.15: api/spec/v1 for the file, cmd/nvidia-mig-parted/assert and apply for the order of entries.
// There, entries are performed one after the other, so the last one holds; here, the first rule
// holds, so the order is reversed. What mig-parted misunderstands in silence is an error: device
// filters that cannot be parsed, and MIG modes that contradict each other on one GPU.
//
// device_plugin.go and the other files with plugin_ read files of NVIDIA's device plugin (version
// v1). Keys about sharing are converted. Keys without effect here become notes. Keys without which
// pods would get less than from the device plugin are errors.
//
// dcm.go reads the config.json of AMD's device config manager, which the AMD GPU operator runs. In
// the older generation (proto/partition.proto of 1.3) every entry of a profile has a number of GPUs;
// in the newer one (docs/configuration/configmap.md of 1.5) one entry can leave it out and has the
// rest. In both, the numbers and the skipped GPUs must add up to the GPUs of the node. That cannot
// be checked without a node: here, a node with fewer GPUs does not fit, and on one with more, the
// others are left as they are. Keys can be in any case, because the device config manager reads
// them so.
//
// kaiwo.go reads the objects of Kaiwo that partition AMD GPUs, of its three generations: KaiwoNode
// (kaiwo.silogen.ai), PartitioningProfile, and PartitioningPlan (infrastructure.silogen.ai). They
// select nodes, and name profiles of the device config manager, so they become commands that label
// nodes. Kaiwo brings the profiles spx and cpx if there are none.
//
// nos.go has what the node labels of nos say. Its objects have no counterpart. What nos writes into
// annotations of nodes, and its tables of geometries, are not needed: the hardware says what it can.
package formats
