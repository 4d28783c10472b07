// Package session makes the NVML calls. Each has a deadline and runs alone on its GPU,
// because NVML calls can hang and cannot be cancelled. NVML is closed while a GPU is
// reset, because an open session keeps the GPUs in use.
//
// It knows neither MIG nor whether the NVML below it is real or simulated.
package session
