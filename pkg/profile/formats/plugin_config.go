package formats

// pluginConfig is the file, with the keys of api/config/v1 of the device plugin 0.20. Pointers are nil for
// missing keys.
type pluginConfig struct {
	Version   string           `json:"version"`
	Flags     *flags           `json:"flags"`
	Resources *pluginResources `json:"resources"`
	Sharing   *pluginSharing   `json:"sharing"`
	Imex      *imex            `json:"imex"`
}

// flags are those of the device plugin. Those with the tag note have no effect.
type flags struct {
	MigStrategy             *string      `json:"migStrategy"`
	FailOnInitError         *bool        `json:"failOnInitError" note:"is not used: the plugin waits for the driver"`
	MpsRoot                 *string      `json:"mpsRoot" note:"is not used: MPS daemons have folders below /run/tranche"`
	NvidiaDriverRoot        *string      `json:"nvidiaDriverRoot" note:"is not used: the driver is found, or the chart's value kubeletPlugin.nvidiaDriverRoot says where it is"`
	NvidiaDevRoot           *string      `json:"nvidiaDevRoot" note:"is not used: device nodes are in the host's /dev"`
	GDRCopyEnabled          *bool        `json:"gdrcopyEnabled" note:"is not used"`
	GDSEnabled              *bool        `json:"gdsEnabled" note:"is not used"`
	MOFEDEnabled            *bool        `json:"mofedEnabled" note:"is not used"`
	UseNodeFeatureAPI       *bool        `json:"useNodeFeatureAPI" note:"is not used: the chart's value nodeLabels.enabled has the node labelled"`
	DeviceDiscoveryStrategy *string      `json:"deviceDiscoveryStrategy" note:"is not used: GPUs are found by NVML"`
	Plugin                  *pluginFlags `json:"plugin"`
	GFD                     *gfdFlags    `json:"gfd"`
}

type pluginFlags struct {
	PassDeviceSpecs *bool `json:"passDeviceSpecs" note:"is not used: the container runtime gets device nodes by CDI"`
	// DeviceListStrategy is one name or a list of them.
	DeviceListStrategy            any     `json:"deviceListStrategy" note:"is not used: the container runtime gets devices by CDI"`
	DeviceIDStrategy              *string `json:"deviceIDStrategy" note:"is not used: GPUs are known by PCI address"`
	CDIAnnotationPrefix           *string `json:"cdiAnnotationPrefix" note:"is not used: the kubelet passes CDI names without annotations"`
	NvidiaCTKPath                 *string `json:"nvidiaCTKPath" note:"is not used: the plugin brings the program of its CDI hooks"`
	ContainerDriverRoot           *string `json:"containerDriverRoot" note:"is not used: the plugin has the host's root folder at /host"`
	SharedDevicesAllocationPolicy *string `json:"sharedDevicesAllocationPolicy" note:"is not used: the scheduler fills a GPU before it takes the next"`
}

// gfdFlags are the flags of GPU feature discovery, which reads the same file.
type gfdFlags struct {
	Oneshot     *bool `json:"oneshot" note:"is not used: it is of GPU feature discovery"`
	NoTimestamp *bool `json:"noTimestamp" note:"is not used: it is of GPU feature discovery"`
	// SleepInterval is "60s" or a number of nanoseconds.
	SleepInterval   any     `json:"sleepInterval" note:"is not used: it is of GPU feature discovery"`
	OutputFile      *string `json:"outputFile" note:"is not used: it is of GPU feature discovery"`
	MachineTypeFile *string `json:"machineTypeFile" note:"is not used: it is of GPU feature discovery"`
}

// pluginResources names resources by product. The device plugin ignores it with a warning.
type pluginResources struct {
	GPUs []pluginResource `json:"gpus"`
	MIGs []pluginResource `json:"mig"`
}

type pluginResource struct {
	Pattern string `json:"pattern"`
	Name    string `json:"name"`
}

type pluginSharing struct {
	TimeSlicing *replicated `json:"timeSlicing"`
	MPS         *replicated `json:"mps"`
}

type replicated struct {
	RenameByDefault bool `json:"renameByDefault"`
	// FailRequestsGreaterThanOne defaults to false for time-slicing and to true for MPS.
	FailRequestsGreaterThanOne *bool                `json:"failRequestsGreaterThanOne"`
	Resources                  []replicatedResource `json:"resources"`
}

type replicatedResource struct {
	Name     string  `json:"name"`
	Rename   *string `json:"rename"`
	Replicas *int32  `json:"replicas"`
	// Devices is "all", a number or a list. The device plugin ignores everything but "all", with a
	// warning.
	Devices any `json:"devices"`
}

type imex struct {
	ChannelIDs []int `json:"channelIDs"`
	Required   bool  `json:"required"`
}
