package overview

import "time"

// Usage is how busy a GPU is.
type Usage struct {
	// Short says it in a few words.
	Short  string
	Series []Series
	// ByClaim says in a few words how much claims use of the GPU's devices, by DEVICE/NAMESPACE/NAME.
	ByClaim map[string]string
}

// Series is how a value changed, the oldest point first.
type Series struct {
	Title  string
	Points []Point
	// Max is the largest possible value; 0: the largest of the points.
	Max float64
	// Text formats a value.
	Text func(float64) string
}

// Point is a value at a time.
type Point struct {
	At    time.Time
	Value float64
}
