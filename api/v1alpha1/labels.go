package v1alpha1

// The labels and annotations of Tranche. The object that has one is in parentheses.
const (
	// LabelProfile (Node): name of the desired PartitionProfile.
	LabelProfile = "tranche.dev/profile"
	// LabelDriverUpgrade (Node): `true`, `nvidia` or `amd` releases the driver of these
	// GPUs.
	LabelDriverUpgrade = "tranche.dev/driver-upgrade"
	// LabelGPUClient (Node): use `true` as a nodeSelector for pods that keep GPUs busy, such
	// as exporters. It is `paused-for-tranche` while GPUs change; a switch waits for such
	// DaemonSet pods in `controller.clientNamespaces`.
	LabelGPUClient = "tranche.dev/gpu-client"
	// LabelFromChart (PartitionProfile): `true` if the profile was created from the chart and
	// is kept as the chart says.
	LabelFromChart = "tranche.dev/from-chart"
	// AnnotationNamespace (DeviceClass `gpu.tranche.dev`): namespace of the installation.
	AnnotationNamespace = "tranche.dev/namespace"
)

// PausedValue is the value of a Node's label that starts a client of GPUs, while the
// client is paused. It was "true" before.
const PausedValue = "paused-for-tranche"

// ControllerName is the name of the controller's Lease, and the component that it
// writes events as.
const ControllerName = "tranche-controller"

// DefaultProfile is the name of the PartitionProfile of nodes that name none.
const DefaultProfile = "default"
