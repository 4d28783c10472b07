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

type flags struct {
	MigStrategy             *string      `json:"migStrategy"`
	FailOnInitError         *bool        `json:"failOnInitError"`
	MpsRoot                 *string      `json:"mpsRoot"`
	NvidiaDriverRoot        *string      `json:"nvidiaDriverRoot"`
	NvidiaDevRoot           *string      `json:"nvidiaDevRoot"`
	GDRCopyEnabled          *bool        `json:"gdrcopyEnabled"`
	GDSEnabled              *bool        `json:"gdsEnabled"`
	MOFEDEnabled            *bool        `json:"mofedEnabled"`
	UseNodeFeatureAPI       *bool        `json:"useNodeFeatureAPI"`
	DeviceDiscoveryStrategy *string      `json:"deviceDiscoveryStrategy"`
	Plugin                  *pluginFlags `json:"plugin"`
	GFD                     *gfdFlags    `json:"gfd"`
}

type pluginFlags struct {
	PassDeviceSpecs *bool `json:"passDeviceSpecs"`
	// DeviceListStrategy is one name or a list of them.
	DeviceListStrategy            any     `json:"deviceListStrategy"`
	DeviceIDStrategy              *string `json:"deviceIDStrategy"`
	CDIAnnotationPrefix           *string `json:"cdiAnnotationPrefix"`
	NvidiaCTKPath                 *string `json:"nvidiaCTKPath"`
	ContainerDriverRoot           *string `json:"containerDriverRoot"`
	SharedDevicesAllocationPolicy *string `json:"sharedDevicesAllocationPolicy"`
}

// gfdFlags are the flags of GPU feature discovery, which reads the same file.
type gfdFlags struct {
	Oneshot     *bool `json:"oneshot"`
	NoTimestamp *bool `json:"noTimestamp"`
	// SleepInterval is "60s" or a number of nanoseconds.
	SleepInterval   any     `json:"sleepInterval"`
	OutputFile      *string `json:"outputFile"`
	MachineTypeFile *string `json:"machineTypeFile"`
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
