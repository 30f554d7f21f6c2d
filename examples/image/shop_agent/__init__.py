"""An agent, its tools and a processor in an image of their own, on top of Tracklog's."""
