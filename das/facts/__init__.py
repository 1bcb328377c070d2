"""What is public: the facts that estimation reads beside the measurements, collected, checked and written."""
