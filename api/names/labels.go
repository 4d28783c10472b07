package names

// The labels and annotations of Tranche, and those of other projects that it reads and writes
// if the chart's formats say so. The object that has one is in parentheses.
const (
	// LabelProfile (Node): name of the desired PartitionProfile.
	LabelProfile = "tranche.dev/profile"
	// LabelDriverUpgrade (Node): `nvidia`, `amd` or `all` releases the driver of these
	// GPUs.
	LabelDriverUpgrade = "tranche.dev/driver-upgrade"
	// LabelGPUMonitoring (Node): use `true` as a nodeSelector for pods that keep GPUs busy, such
	// as exporters. It is `paused-for-tranche` while GPUs change; a switch waits for such
	// DaemonSet pods in `controller.monitoringNamespaces`.
	LabelGPUMonitoring = "tranche.dev/gpu-monitoring"
	// LabelCreatedFrom (PartitionProfile, ResourceClaimTemplate): what the controller created the
	// object from, and follows: `Chart`, values of the chart; `ConfigMap`, a configuration of
	// another project that a node's label names; `Amount`, the amount in the template's name. Such a
	// template is deleted when no pod has named it for an hour.
	LabelCreatedFrom = "tranche.dev/created-from"
	// AnnotationProfileFrom (GPUNode): the node labels that `spec.profileName` was set from.
	AnnotationProfileFrom = "tranche.dev/profile-from"
	// AnnotationProfileSet (GPUNode): the value that they set. If `spec.profileName` differs,
	// somebody has changed it since.
	AnnotationProfileSet = "tranche.dev/profile-set"
	// LabelMIGConfig (Node): name of a configuration of mig-parted, with
	// `formats.migParted`.
	LabelMIGConfig = "nvidia.com/mig.config"
	// LabelMIGConfigState (Node): its state: `pending`, `rebooting`, `success` or
	// `failed`.
	LabelMIGConfigState = "nvidia.com/mig.config.state"
	// LabelDevicePluginConfig (Node): name of a file in the chart's `devicePluginConfig`.
	// [Migrate](../admin/migrate-from-device-plugin.md).
	LabelDevicePluginConfig = "nvidia.com/device-plugin.config"
	// LabelGPUConfigProfile (Node): name of a profile of AMD's device config manager, with
	// `formats.deviceConfigManager`.
	LabelGPUConfigProfile = "dcm.amd.com/gpu-config-profile"
	// LabelGPUConfigProfileState (Node): its state: `in-progress`, `success` or
	// `failure`.
	LabelGPUConfigProfileState = "dcm.amd.com/gpu-config-profile-state"
	// LabelKaiwoEnabled (Node): `true` enables the next label, with `formats.kaiwo`.
	// Otherwise the node keeps its profile.
	LabelKaiwoEnabled = "kaiwo.silogen.ai/node.amd.partitioning.enabled"
	// LabelKaiwoProfile (Node): `spx`, `cpx` or another profile.
	LabelKaiwoProfile = "kaiwo.silogen.ai/node.amd.partitioning.profile"
	// LabelNos (Node): `mig`, `mps` or `hybrid`, with `formats.nos`.
	LabelNos = "nos.nebuly.com/gpu-partitioning"
	// LabelNosOlder (Node): as `nos.nebuly.com/gpu-partitioning`.
	LabelNosOlder = "nos.nebuly.ai/gpu-partitioning"
	// LabelTranslate (Namespace): `kai`, `hami` or `nos`: requests of pods in that project's
	// format become claims.
	LabelTranslate = "tranche.dev/translate"
	// LabelRequestGPUResources (Namespace): `true`: pods get requests for GPU memory and compute
	// from their claims, with `gpuResources.podRequests.enabled`. `false`: not, although pods of all
	// namespaces do.
	LabelRequestGPUResources = "tranche.dev/request-gpu-resources"
	// LabelDefragmentation (Namespace, Pod): `true`: pods may be evicted to make room for
	// another pod, if they fit elsewhere. A pod's label overrides its namespace's.
	LabelDefragmentation = "tranche.dev/defragmentation"
	// LabelPack (Pod): `true` attracts pods that request GPUs, with `podAffinity.enabled`; the
	// chart's policy adds it. `false`: the policy leaves the pod as it is.
	LabelPack = "tranche.dev/pack"
	// AnnotationSystemNamespace (DeviceClass `gpu.tranche.dev`): namespace of the installation.
	AnnotationSystemNamespace = "tranche.dev/system-namespace"
)

// ControllerName is the name of the controller's Lease, and the reporting component of its
// events.
const ControllerName = "tranche-controller"

// DefaultProfile is the name of the PartitionProfile of nodes that name none.
const DefaultProfile = "default"
