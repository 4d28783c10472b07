package cluster

import (
	"testing"

	"github.com/stretchr/testify/assert"
	resourceapi "k8s.io/api/resource/v1"
)

func TestServingByTheDriver(t *testing.T) {
	for expression, want := range map[string]Serving{
		`device.driver == "gpu.tranche.dev"`: Ours,
		`device.driver == "gpu.tranche.dev" && device.attributes["gpu.tranche.dev"].?profile.orValue("") == "1g.10gb"`:   Ours,
		`device.attributes["gpu.tranche.dev"].profile == "1g.10gb" && ("gpu.tranche.dev" == device.driver)`:              Ours,
		`device.driver in ["gpu.tranche.dev"] && device.capacity["gpu.tranche.dev"].memory.isGreaterThan(quantity("1"))`: Ours,
		`device.driver.startsWith("gpu.")`: OursPerhaps,
		`device.driver == "nic.example.com" && device.attributes["nic.example.com"].speed > 100`:               Others,
		`device.driver != "gpu.tranche.dev"`:                                                                   Others,
		`device.driver != "other.example.com"`:                                                                 OursPerhaps,
		`device.driver == "gpu.tranche.dev" || device.attributes["gpu.nvidia.com"].?type.orValue("") == "mig"`: OursPerhaps,
		`device.attributes["gpu.tranche.dev"].?profile.orValue("") == "1g.10gb"`:                               OursPerhaps,
		`device.attributes["nic.example.com"].speed > 100`:                                                     OursPerhaps,
		`cel.bind(d, device, d.driver == "nic.example.com")`:                                                   OursPerhaps,
		`device.driver ==`: OursPerhaps,
		`true`:             OursPerhaps,
	} {
		c := New(Objects{})
		selectors := []resourceapi.DeviceSelector{{CEL: &resourceapi.CELDeviceSelector{Expression: expression}}}
		assert.Equal(t, want, c.serving(t.Context(), selectors), expression)
	}
}
