package migparted

const version = "v1"

// config is the file.
type config struct {
	Version    string             `json:"version"`
	MIGConfigs map[string][]entry `json:"mig-configs"`
}

// entry says how a set of GPUs is partitioned.
type entry struct {
	// DeviceFilter is a text or a list of them.
	DeviceFilter any `json:"device-filter"`
	// Devices is "all" or a list of indexes.
	Devices    any            `json:"devices"`
	MIGEnabled *bool          `json:"mig-enabled"`
	MIGDevices map[string]int `json:"mig-devices"`
}
