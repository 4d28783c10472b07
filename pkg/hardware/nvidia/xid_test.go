package nvidia

import (
	"slices"
	"testing"

	"github.com/NVIDIA/go-nvml/pkg/nvml"
	"github.com/stretchr/testify/assert"
)

func TestXIDTableIsSound(t *testing.T) {
	seen := map[uint64]bool{}
	for _, row := range xidTable {
		assert.NotEmpty(t, row.numbers)
		for _, number := range row.numbers {
			assert.False(t, seen[number], "XID %d is there twice", number)
			seen[number] = true
		}
		assert.NotEmpty(t, row.meaning, row.numbers)
		assert.NotEmpty(t, row.catalog, row.numbers)
		if row.class == fatal {
			assert.NotEqual(t, cureNone, row.cure, "%v: a person must know what to do", row.numbers)
		}
		byRule := fatal
		switch row.catalog {
		case "RESTART_APP":
			byRule = application
		case "IGNORE":
			byRule = informative
		}
		if row.class != byRule && row.class != ruled {
			assert.NotEmpty(t, row.why, "%v departs from the catalog", row.numbers)
		}
	}
}

func TestXIDClasses(t *testing.T) {
	for number, want := range map[uint64]class{
		13: application, 31: application, 43: application, 45: application, 68: application, 109: application,
		63: informative, 92: informative, 94: informative, 171: informative,
		46: fatal, 48: fatal, 62: fatal, 64: fatal, 74: fatal, 79: fatal, 95: fatal, 110: fatal, 119: fatal, 120: fatal, 140: fatal, 143: fatal,
		154: ruled,
		0:   fatal, 999: fatal, 12345: fatal,
	} {
		assert.Equal(t, want, lookUpXID(number).class, "XID %d", number)
	}
}

// What NVIDIA's own drivers skip must never take a GPU out of service.
func TestWhatThePeersSkipIsNeverFatal(t *testing.T) {
	for _, number := range []uint64{13, 31, 43, 45, 68, 109} {
		assert.Equal(t, application, lookUpXID(number).class, "XID %d", number)
	}
}

func TestXIDText(t *testing.T) {
	three := 3
	assert.Equal(t, "GPU 0000:1b:00.0: XID 95 in GPU instance 3: an uncorrectable memory error that could not be contained: "+
		"every program on the GPU is affected; drain the node, end every program that has the GPU open, this plugin included, "+
		"and run nvidia-smi --gpu-reset -i 0000:1b:00.0, or reboot the node", lookUpXID(95).describe("0000:1b:00.0", 95, &three))
	assert.Equal(t, "GPU 0000:1b:00.0: XID 63: a bad row of memory is going to be replaced at the next reset",
		lookUpXID(63).describe("0000:1b:00.0", 63, nil))
}

func TestEventsThatAreNoXID(t *testing.T) {
	for kind, want := range map[uint64]uint64{
		nvml.EventTypeXidCriticalError: 31, nvml.EventTypeDoubleBitEccError: 48, nvml.EventTypeFatalPoisonError: 95,
		nvml.EventTypeDramRetirementFailure: 64, nvml.EventTypeGpuUnavailableError: 79, nvml.EventTypeGpuRecoveryAction: 154,
	} {
		number, ok := xidOf(nvml.EventData{EventType: kind, EventData: 31})
		assert.True(t, ok)
		assert.Equal(t, want, number)
	}
	_, ok := xidOf(nvml.EventData{EventType: nvml.EventTypeClock})
	assert.False(t, ok)
	assert.Zero(t, watchedMask&(nvml.EventTypeClock|nvml.EventTypePState|nvml.EventTypeSingleBitEccError))
	for _, number := range watchedEvents {
		if number != 0 {
			assert.True(t, slices.ContainsFunc(xidTable, func(x xid) bool { return slices.Contains(x.numbers, number) }))
		}
	}
}
