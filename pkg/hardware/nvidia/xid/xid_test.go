package xid

import (
	"slices"
	"testing"

	"github.com/NVIDIA/go-nvml/pkg/nvml"
	"github.com/stretchr/testify/assert"
)

func TestXIDTableIsSound(t *testing.T) {
	seen := map[uint64]bool{}
	for _, row := range table {
		assert.NotEmpty(t, row.numbers)
		for _, number := range row.numbers {
			assert.False(t, seen[number], "XID %d is there twice", number)
			seen[number] = true
		}
		assert.NotEmpty(t, row.meaning, row.numbers)
		assert.NotEmpty(t, row.catalog, row.numbers)
		if row.Class == Fatal {
			assert.NotEqual(t, cureNone, row.cure, "%v: a person must know what to do", row.numbers)
		}
		byRule := Fatal
		switch row.catalog {
		case "RESTART_APP":
			byRule = Application
		case "IGNORE":
			byRule = Informative
		}
		if row.Class != byRule && row.Class != Ruled {
			assert.NotEmpty(t, row.why, "%v departs from the catalog", row.numbers)
		}
	}
}

func TestXIDClasses(t *testing.T) {
	for number, want := range map[uint64]Class{
		13: Application, 31: Application, 43: Application, 45: Application, 68: Application, 109: Application,
		63: Informative, 92: Informative, 94: Informative, 171: Informative,
		46: Fatal, 48: Fatal, 62: Fatal, 64: Fatal, 74: Fatal, 79: Fatal, 95: Fatal, 110: Fatal, 119: Fatal, 120: Fatal, 140: Fatal, 143: Fatal,
		154: Ruled,
		0:   Fatal, 999: Fatal, 12345: Fatal,
	} {
		assert.Equal(t, want, Lookup(number).Class, "XID %d", number)
	}
}

// What NVIDIA's own drivers skip must never take a GPU out of service.
func TestWhatThePeersSkipIsNeverFatal(t *testing.T) {
	for _, number := range []uint64{13, 31, 43, 45, 68, 109} {
		assert.Equal(t, Application, Lookup(number).Class, "XID %d", number)
	}
}

func TestXIDText(t *testing.T) {
	three := 3
	assert.Equal(t, "GPU 0000:1b:00.0: XID 95 in GPU instance 3: an uncorrectable memory error that could not be contained: "+
		"every program on the GPU is affected; drain the node, end every program that has the GPU open, this plugin included, "+
		"and run nvidia-smi --gpu-reset -i 0000:1b:00.0, or reboot the node", Lookup(95).Describe("0000:1b:00.0", 95, &three))
	assert.Equal(t, "GPU 0000:1b:00.0: XID 63: a bad row of memory is going to be replaced at the next reset",
		Lookup(63).Describe("0000:1b:00.0", 63, nil))
}

func TestEventsThatAreNoXID(t *testing.T) {
	for kind, want := range map[uint64]uint64{
		nvml.EventTypeXidCriticalError: 31, nvml.EventTypeDoubleBitEccError: 48, nvml.EventTypeFatalPoisonError: 95,
		nvml.EventTypeDramRetirementFailure: 64, nvml.EventTypeGpuUnavailableError: 79, nvml.EventTypeGpuRecoveryAction: 154,
	} {
		number, ok := Of(nvml.EventData{EventType: kind, EventData: 31})
		assert.True(t, ok)
		assert.Equal(t, want, number)
	}
	_, ok := Of(nvml.EventData{EventType: nvml.EventTypeClock})
	assert.False(t, ok)
	assert.Zero(t, EventTypes&(nvml.EventTypeClock|nvml.EventTypePState|nvml.EventTypeSingleBitEccError))
	for _, number := range eventTypes {
		if number != 0 {
			assert.True(t, slices.ContainsFunc(table, func(e Error) bool { return slices.Contains(e.numbers, number) }))
		}
	}
}

func TestRecovery(t *testing.T) {
	assert.NoError(t, Recovery("0000:1b:00.0", nvml.GPU_RECOVERY_ACTION_NONE))
	assert.NoError(t, Recovery("0000:1b:00.0", nvml.GPU_RECOVERY_ACTION_RECOVER_IMEX_DOMAIN))
	assert.ErrorContains(t, Recovery("0000:1b:00.0", 42), "GPU 0000:1b:00.0: the driver asks for recovery action 42, which this version does not know")
}
